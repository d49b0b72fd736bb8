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

/** A tenth of a second of a chord. */
function sound() {
  return Float32Array.from({ length: 1600 }, (_, i) => Math.sin(i / 5) * 0.5 + Math.sin(i / 13) * 0.3);
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
