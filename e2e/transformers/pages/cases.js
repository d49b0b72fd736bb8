// What applications do with transformers.js. Each case gets the library and the options of its models, and returns plain data.

/** Tensors and pictures as plain data, typed arrays as lists. */
export function plain(value) {
  if (typeof value === 'bigint') return Number(value);
  if (ArrayBuffer.isView(value)) return [...value].map(plain);
  if (Array.isArray(value)) return value.map(plain);
  if (value?.ort_tensor) return { type: value.type, dims: [...value.dims], data: plain(value.data) };
  if (value?.channels) return { size: [value.width, value.height, value.channels], pixels: plain(value.data) };
  if (value && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plain(v)]));
  return value;
}

const SENTENCES = ['The movie was great, I love it.', 'We hate this bad film', 'Paris'];

/** A picture of coloured waves. */
export function picture({ RawImage }, width = 40, height = 32) {
  const data = new Uint8ClampedArray(width * height * 3);
  for (let i = 0; i < data.length; i += 1) {
    const [x, y, c] = [Math.floor(i / 3) % width, Math.floor(i / 3 / width), i % 3];
    data[i] = 128 + 100 * Math.sin((x * (c + 1) + y * 2) / 7);
  }
  return new RawImage(data, width, height, 3);
}

/** A chord, by default for a tenth of a second, one voice of which rises by `rise`. */
function sound(length = 1600, rise = 0) {
  return Float32Array.from({ length }, (_, i) => Math.sin(i / 5 + rise * i * i) * 0.5 + Math.sin(i / 13) * 0.3);
}

export const greedy = { max_new_tokens: 12, do_sample: false };

export const cases = {
  async 'feature-extraction'(t, options) {
    const extract = await t.pipeline('feature-extraction', 'encoder', options);
    const pooled = await extract(SENTENCES, { pooling: 'mean', normalize: true });
    return [pooled, await extract('A single one', { pooling: 'cls' }), await extract('words'), t.cos_sim(pooled[0].data, pooled[1].data)];
  },

  async 'text-classification'(t, options) {
    const classify = await t.pipeline('text-classification', 'feelings', options);
    return [await classify(SENTENCES), await classify(SENTENCES[1], { top_k: 3 })];
  },

  async 'token-classification'(t, options) {
    const tag = await t.pipeline('token-classification', 'names', options);
    return tag('John lives in Paris and Mary works in London', { ignore_labels: [] });
  },

  async 'fill-mask'(t, options) {
    const fill = await t.pipeline('fill-mask', 'masked', options);
    return fill('Paris is the [MASK] of France', { top_k: 4 });
  },

  async 'question-answering'(t, options) {
    const ask = await t.pipeline('question-answering', 'answers', options);
    return ask('Where lives John?', 'John lives in Paris. Mary works in London, the city.', { top_k: 2 });
  },

  async 'zero-shot-classification'(t, options) {
    const classify = await t.pipeline('zero-shot-classification', 'follows', options);
    const labels = ['sport', 'politics', 'science'];
    return [await classify(SENTENCES[0], labels), await classify(SENTENCES[1], labels, { multi_label: true })];
  },

  async 'text-generation'(t, options) {
    const tell = await t.pipeline('text-generation', 'story', options);
    const pieces = [];
    const streamer = new t.TextStreamer(tell.tokenizer, { skip_prompt: true, callback_function: (text) => pieces.push(text) });
    const one = await tell('Once upon a time', { ...greedy, streamer });
    const several = await tell(['The cat', 'In a land far away, the king'], greedy);
    const chat = await tell([{ role: 'user', content: 'Hi' }], greedy);
    return { one, several, chat, pieces };
  },

  // `generate` feeds one token after the first step, whatever the model has: without caches all are fed again.
  async 'text-generation without caches'(t, options) {
    const tokenizer = await t.AutoTokenizer.from_pretrained('story-without-caches');
    const model = await t.AutoModelForCausalLM.from_pretrained('story-without-caches', options);
    let { input_ids } = tokenizer('Once upon a time');
    for (let step = 0; step < 5; step += 1) {
      const { logits } = await model({ input_ids, attention_mask: t.ones_like(input_ids) });
      const row = logits.data.slice(-logits.dims[2]);
      const next = row.indexOf(Math.max(...row));
      input_ids = t.cat([input_ids, new t.Tensor('int64', [BigInt(next)], [1, 1])], 1);
    }
    await model.dispose();
    return [input_ids, tokenizer.decode(input_ids.tolist()[0])];
  },

  async 'a cache kept over turns'(t, options) {
    const tokenizer = await t.AutoTokenizer.from_pretrained('story');
    const model = await t.AutoModelForCausalLM.from_pretrained('story', options);
    const places = [];
    let past_key_values = null;
    let text = 'Hello';
    const turns = [];
    for (const more of [' there', ' and you', ' too']) {
      text += more;
      const inputs = tokenizer(text);
      const made = await model.generate({ ...inputs, past_key_values, max_new_tokens: 4, do_sample: false, return_dict_in_generate: true });
      past_key_values = made.past_key_values;
      places.push(past_key_values.get_seq_length());
      text = tokenizer.decode(made.sequences[0], { skip_special_tokens: false });
      turns.push([...made.sequences[0].data].map(Number));
    }
    past_key_values.dispose?.();
    await model.dispose();
    return { turns, places };
  },

  async 'translation'(t, options) {
    const translate = await t.pipeline('translation', 'translator', options);
    return translate(['the city of paris', 'what is it'], greedy);
  },

  async 'summarization'(t, options) {
    const summarize = await t.pipeline('summarization', 'translator', options);
    return summarize('this is the text about science and sport', { ...greedy, num_beams: 1 });
  },

  async 'image-classification'(t, options) {
    const classify = await t.pipeline('image-classification', 'animals', options);
    return classify([picture(t), picture(t, 20, 30)], { top_k: 4 });
  },

  async 'image-feature-extraction'(t, options) {
    const extract = await t.pipeline('image-feature-extraction', 'picture', options);
    return [await extract(picture(t)), await extract(picture(t), { pool: true })];
  },

  async 'object-detection'(t, options) {
    const detect = await t.pipeline('object-detection', 'boxes', options);
    return detect(picture(t, 64, 64), { threshold: 0.2, percentage: true });
  },

  async 'image-segmentation'(t, options) {
    const segment = await t.pipeline('image-segmentation', 'areas', options);
    return segment(picture(t));
  },

  async 'depth-estimation'(t, options) {
    const estimate = await t.pipeline('depth-estimation', 'depth', options);
    const { predicted_depth, depth } = await estimate(picture(t, 48, 48));
    return { predicted_depth, size: depth.size };
  },

  async 'audio-classification'(t, options) {
    const classify = await t.pipeline('audio-classification', 'sound', options);
    return classify(sound(), { top_k: 4 });
  },

  async 'feature-extraction in 8 bits'(t, options) {
    const extract = await t.pipeline('feature-extraction', 'small-encoder', { ...options, dtype: 'q8' });
    return [await extract(SENTENCES, { pooling: 'mean', normalize: true }), await extract('A single one', { pooling: 'cls' })];
  },

  async 'text-generation in 4 bits'(t, options) {
    const tell = await t.pipeline('text-generation', 'small-story', { ...options, dtype: 'q4' });
    const pieces = [];
    const streamer = new t.TextStreamer(tell.tokenizer, { skip_prompt: true, callback_function: (text) => pieces.push(text) });
    return { one: await tell('Once upon a time', { ...greedy, streamer }), several: await tell(['The cat', 'In a land far away'], greedy), pieces };
  },

  async 'text-generation by Qwen2'(t, options) {
    const tell = await t.pipeline('text-generation', 'qwen2', options);
    return [await tell('Once upon a time', greedy), await tell(['The cat', 'In a land far away, the king'], greedy)];
  },

  async 'text-generation by GPT-2'(t, options) {
    const tell = await t.pipeline('text-generation', 'gpt2', options);
    return [await tell('Once upon a time', greedy), await tell(['The cat', 'In a land far away, the king'], greedy)];
  },

  async 'text-generation by a model of the builder'(t, options) {
    const tell = await t.pipeline('text-generation', 'built', options);
    return [await tell('Once upon a time', greedy), await tell([{ role: 'user', content: 'Hi' }], greedy)];
  },

  async 'text-generation by a model of the builder in 4 bits'(t, options) {
    const tell = await t.pipeline('text-generation', 'built', { ...options, dtype: 'q4' });
    return [await tell('Once upon a time', greedy), await tell('The cat and the king in the land', greedy)];
  },

  async 'text-generation by a model of the builder in 4 bits and float16'(t, options) {
    const tell = await t.pipeline('text-generation', 'built', { ...options, dtype: 'q4f16' });
    return [await tell('Once upon a time', greedy), await tell('The cat', greedy)];
  },

  async 'text-generation from files of weights'(t, options) {
    const tell = await t.pipeline('text-generation', 'story-in-pieces', { ...options, use_external_data_format: 3 });
    return tell('Once upon a time', greedy);
  },

  // By a token that ends it, by a length, by the page's own rule and by its button.
  async 'text-generation that stops'(t, options) {
    const tell = await t.pipeline('text-generation', 'story', options);
    const { input_ids } = tell.tokenizer('Once upon a time');
    const made = await tell.model.generate({ inputs: input_ids, ...greedy });
    const third = Number(made.data[input_ids.dims[1] + 2]);
    class Rule extends t.StoppingCriteria {
      _call(ids) {
        return ids.map((row) => row.length >= input_ids.dims[1] + 5);
      }
    }
    const button = new t.InterruptableStoppingCriteria();
    let count = 0;
    const streamer = new t.TextStreamer(tell.tokenizer, {
      skip_prompt: true,
      token_callback_function: () => { if ((count += 1) === 4) button.interrupt(); },
      callback_function: () => {},
    });
    return {
      end: await tell.model.generate({ inputs: input_ids, ...greedy, eos_token_id: third }),
      length: await tell.model.generate({ inputs: input_ids, do_sample: false, max_length: input_ids.dims[1] + 3 }),
      rule: await tell('Once upon a time', { ...greedy, stopping_criteria: new Rule() }),
      button: await tell('Once upon a time', { ...greedy, streamer, stopping_criteria: button }),
      count,
    };
  },

  async 'automatic-speech-recognition by Whisper'(t, options) {
    const hear = await t.pipeline('automatic-speech-recognition', 'whisper', options);
    const said = sound(48000, 1e-6);
    // Weights that learned nothing say times also where none were asked for.
    const { timestamp_begin } = hear.tokenizer;
    const [start] = hear.tokenizer.encode('<|startoftranscript|>', { add_special_tokens: false });
    const suppress_tokens = Array.from({ length: timestamp_begin + 1501 - start }, (_, i) => start + i);
    return [
      await hear(said, { language: 'en', task: 'transcribe', max_new_tokens: 8, suppress_tokens }),
      await hear(said, { language: 'en', chunk_length_s: 2, max_new_tokens: 6, suppress_tokens }),
      await hear(said, { language: 'de', return_timestamps: true, max_new_tokens: 12 }),
    ];
  },

  async 'automatic-speech-recognition by wav2vec2'(t, options) {
    const hear = await t.pipeline('automatic-speech-recognition', 'spelling', options);
    const logits = await hear.model(await hear.processor(sound()));
    return [await hear(sound()), await hear([sound(2000), sound(900)]), logits.logits];
  },

  async 'background-removal'(t, options) {
    const cut = await t.pipeline('background-removal', 'matting', options);
    return cut(picture(t, 48, 40));
  },

  async 'image-to-image'(t, options) {
    const enlarge = await t.pipeline('image-to-image', 'sharper', options);
    return [await enlarge(picture(t, 24, 16)), await enlarge(picture(t, 13, 11))];
  },

  async 'image-to-text'(t, options) {
    const tell = await t.pipeline('image-to-text', 'captions', options);
    return [await tell(picture(t), greedy), await tell([picture(t, 20, 30), picture(t, 64, 48)], greedy)];
  },

  async 'zero-shot-image-classification'(t, options) {
    const classify = await t.pipeline('zero-shot-image-classification', 'clip', options);
    return classify([picture(t), picture(t, 50, 33)], ['cat', 'dog', 'a bird that sings']);
  },

  // The pipeline of 4.3 looks for no processor and so takes SpeechT5 for a model that gives waveforms: its parts, then.
  async 'text-to-audio by SpeechT5'(t, options) {
    const tokenizer = await t.AutoTokenizer.from_pretrained('speaker');
    const model = await t.SpeechT5ForTextToSpeech.from_pretrained('speaker', options);
    const vocoder = await t.SpeechT5HifiGan.from_pretrained('vocoder', options);
    const { input_ids } = tokenizer('the city of paris');
    const speaker = new t.Tensor('float32', Float32Array.from({ length: 6 }, (_, i) => Math.sin(i)), [1, 6]);
    const spoken = await model.generate_speech(input_ids, speaker, { vocoder, maxlenratio: 4 });
    await Promise.all([model.dispose(), vocoder.dispose()]);
    return spoken;
  },

  async 'text-to-audio by VITS'(t, options) {
    const speak = await t.pipeline('text-to-audio', 'voice', options);
    const said = [await speak('the city of paris'), await speak('happy')];
    return said.map(({ audio, sampling_rate }) => ({ audio, sampling_rate }));
  },

  // Each asks while the others compute.
  async 'several pipelines at once'(t, options) {
    const [extract, classify, tell, tag] = await Promise.all([
      t.pipeline('feature-extraction', 'encoder', options),
      t.pipeline('image-classification', 'animals', options),
      t.pipeline('text-generation', 'story', options),
      t.pipeline('token-classification', 'names', options),
    ]);
    const made = await Promise.all([
      extract(SENTENCES, { pooling: 'mean' }),
      classify(picture(t), { top_k: 4 }),
      tell('The cat', greedy),
      tag('John lives in Paris', { ignore_labels: [] }),
      extract('words'),
    ]);
    await Promise.all([extract, classify, tell, tag].map((pipeline) => pipeline.dispose()));
    return made;
  },

  async 'tensor operations'(t) {
    const ramp = (...dims) => {
      const data = Float32Array.from({ length: dims.reduce((a, b) => a * b, 1) }, (_, i) => Math.sin(i * i));
      return new t.Tensor('float32', data, dims);
    };
    const square = ramp(1, 2, 6, 5);
    return [
      ...await Promise.all(['bilinear', 'bicubic', 'nearest'].map((mode) => t.interpolate_4d(square, { size: [9, 7], mode }))),
      await t.matmul(ramp(3, 4), ramp(4, 2)),
      await t.topk(ramp(2, 20), 3),
      await t.slice(ramp(4, 6), [1, 2], [3, 6], [0, 1]),
      await t.rfft(ramp(1, 16), new t.Tensor('int64', [1n], [])),
    ];
  },
};
