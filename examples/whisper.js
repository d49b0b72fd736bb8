// Whisper: log-mel features, encoder, decoder with caches, all on the GPU; timestamps and chunks as its authors have them.

import { InferenceSession, Tensor } from '../web/pyruntime.js';
import { Tokenizer } from '../web/vendor/tokenizers.js';  // @huggingface/tokenizers
export const RATE = 16000;
const CHUNK = 30 * RATE, int64 = (ids) => new Tensor('int64', BigInt64Array.from(ids, BigInt), [1, ids.length]);
let model, end, stamps, language;  // `stamps`: the token of 0.00 s; the next ones are 0.02 s apart

/** Of a folder as transformers.js has it; `read` gives a file of it. */
export async function load(read) {
  const json = async (path) => JSON.parse(await (await read(path)).text());
  const [config, rules, ...words] = await Promise.all(['config', 'generation_config', 'tokenizer', 'tokenizer_config'].map((name) => json(`${name}.json`)));
  const open = async (source) => InferenceSession.create(await source, { preferredOutputLocation: 'gpu-buffer' });
  const [mel, encoder, decoder] = [await open(new URL('log_mel.onnx', import.meta.url)), await open(read('onnx/encoder_model.onnx')), await open(read('onnx/decoder_model_merged.onnx'))];
  const edges = Float32Array.from({ length: config.num_mel_bins + 2 }, (_, i) => {  // in Hz, on Slaney's scale of pitches
    const pitch = i / (config.num_mel_bins + 1) * (15 + 27 * Math.log(8) / Math.log(6.4));
    return pitch < 15 ? pitch * 200 / 3 : 1000 * 6.4 ** ((pitch - 15) / 27);
  });
  model = { config, rules, edges, mel, encoder, decoder, tokenizer: new Tokenizer(...words) };
  [end, stamps, language] = [config.eos_token_id, rules.no_timestamps_token_id + 1, undefined];
}

/** Logits after `ids`, whose caches are kept in `past`. */
async function step(states, past, ids) {
  const { decoder, config: { decoder_attention_heads: heads, d_model: width } } = model, first = !past.size;
  const empty = new Tensor('float32', new Float32Array(), [1, heads, 0, width / heads]);
  const known = { input_ids: int64(ids), encoder_hidden_states: states, use_cache_branch: new Tensor('bool', [!first], [1]) };
  const { logits, ...presents } = await decoder.run(Object.fromEntries(decoder.inputNames.map((name) => [name, known[name] ?? past.get(name) ?? empty])));
  for (const [name, value] of Object.entries(presents)) {
    const key = name.replace('present', 'past_key_values'), fixed = !first && key.includes('encoder');
    (fixed ? value : past.get(key))?.dispose();  // the encoder's keys and values are those of the first step
    if (!fixed) past.set(key, value);
  }
  return (await logits.getData(true)).slice(-logits.dims[2]);
}

/** The likeliest token that Whisper's rules of timestamps allow after those of this chunk. */
function pick(logits, made) {
  const [is, best] = [(id) => id >= stamps, (from, to) => logits.subarray(from, to).reduce((a, b) => Math.max(a, b), -Infinity)];
  const never = [...model.rules.suppress_tokens ?? [], ...(made.length ? [] : model.rules.begin_suppress_tokens ?? []), stamps - 1];
  for (const id of never) logits[id] = -Infinity;
  const last = is(made.at(-1)), before = made.length < 2 || is(made.at(-2)), latest = made.findLast(is);
  if (!made.length) logits.fill(-Infinity, 0, stamps).fill(-Infinity, stamps + (model.rules.max_initial_timestamp_index ?? 50) + 1);
  else if (last) logits.fill(-Infinity, ...(before ? [stamps] : [0, end]));  // they come in pairs, and first alone
  if (latest !== undefined) logits.fill(-Infinity, stamps, latest + (last && !before ? 0 : 1));
  const top = best(stamps), sum = logits.subarray(stamps).reduce((all, value) => all + Math.exp(value - top), 0);
  if (top + Math.log(sum) > best(0, stamps)) logits.fill(-Infinity, 0, stamps);
  return logits.indexOf(best(0));
}

/** Phrases with their seconds. A chunk of 30 s begins where the last whole phrase of the one before ended. */
export async function* transcribe(sound) {
  const { rules, config, tokenizer, mel, encoder, edges } = model, { decoder_start_token_id: start, max_target_positions: most = 448 } = config;
  for (let from = 0, past = new Map(), forget = () => { past.forEach((value) => value.dispose()); past.clear(); }; from < sound.length;) {
    const samples = new Float32Array(CHUNK), made = [], languages = Object.values(rules.lang_to_id ?? {});
    samples.set(sound.subarray(from, from + CHUNK));
    const { log_mel } = await mel.run({ samples: new Tensor(samples, [1, CHUNK]), edges: new Tensor(edges) });
    const [states] = Object.values(await encoder.run({ input_features: log_mel }));
    if (languages.length && language === undefined) {
      const logits = await step(states, past, [start]);
      language = languages.reduce((a, b) => (logits[b] > logits[a] ? b : a));
      forget();
    }
    let next = languages.length ? [start, language, rules.task_to_id.transcribe] : [start];
    for (; made.at(-1) !== end && made.length < most / 2; next = made.slice(-1)) made.push(pick(await step(states, past, next), made));
    [log_mel, states].forEach((value) => value.dispose());
    forget();
    const ids = made.filter((id) => id !== end), whole = from + CHUNK >= sound.length;
    const phrase = (to) => ({ begin: from / RATE + begin, end: from / RATE + to, text: tokenizer.decode(words, { skip_special_tokens: true }) });
    let [begin, words] = [0, []];
    for (const id of ids) {
      if (id < stamps && words.push(id)) continue;
      if (words.length) yield phrase((id - stamps) / 50);
      [begin, words] = [(id - stamps) / 50, []];
    }
    const goesOn = begin > 1 && !whole && (words.length || ids.at(-2) >= stamps);
    if (words.length && !goesOn) yield phrase(Math.max(begin, Math.min(30, (sound.length - from) / RATE)));
    from += goesOn ? Math.round(begin * RATE) : CHUNK;
  }
}
