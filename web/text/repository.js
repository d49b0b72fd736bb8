// Read a language model's folder: location of the graph, names of its inputs, sampling options. Folders have the layout
// of transformers.js or of onnxruntime-genai.
/**
 * Read a language model's folder: where its graph is, the names of its inputs, its sampling settings. Folders have the layout of
 * transformers.js or of onnxruntime-genai.
 */

import { summaryOf } from '../onnx/summary.js';
import { addressOf, json, required } from './folder.js';

/** @typedef {import('./folder.js').Folder} Folder */
/** @typedef {import('../pyruntime.js').SamplingOptions} SamplingOptions */
/**
 * @typedef {object} Names names of inputs and outputs; `%d` is the index of a layer
 * @property {string} ids
 * @property {string} mask
 * @property {string} positions
 * @property {string} logits
 * @property {[past: string, present: string][]} caches
 *
 * @typedef {object} HeadSizes sizes of caches, if the configuration has them
 * @property {number | undefined} heads number of key-value heads
 * @property {number | undefined} components of each head
 *
 * @typedef {object} SlidingWindow the window options of genai_config.json
 * @property {number} slack rows beyond the window in caches that hold a window
 * @property {string | undefined} slides the field that makes inputs or caches windows of a fixed size
 *
 * @typedef {object} Repository
 * @property {string} model path of the graph
 * @property {Names} names
 * @property {HeadSizes} sizes
 * @property {SlidingWindow} sliding
 * @property {SamplingOptions} sampling recommended options
 * @property {number[]} endTokens
 * @property {number | undefined} beginToken token that starts the model's texts, if any
 * @property {number | undefined} sinks number of leading tokens that a window keeps, if the folder sets it
 * @property {number} contextLength maximum number of tokens that it attends to
 */

/** File name suffixes by dtype, as in transformers.js. @type {Record<string, string>} */
const SUFFIXES = {
  fp32: '', fp16: '_fp16', int8: '_int8', uint8: '_uint8', q8: '_quantized', q4: '_q4', q4f16: '_q4f16', q2: '_q2',
  q2f16: '_q2f16', q1: '_q1', q1f16: '_q1f16', bnb4: '_bnb4',
};

/** Data types by preference if the caller names none: small ones first, as weights dominate loading time. */
const PREFERRED = ['q4f16', 'q4', 'fp16', 'fp32', 'q8'];

/** @type {Names} */
const USUAL = {
  ids: 'input_ids', mask: 'attention_mask', positions: 'position_ids', logits: 'logits',
  caches: [['past_key_values.', 'present.'], ['past_key_', 'present_key_'], ['past_value_', 'present_value_'], ['past_', 'present_']],
};

/** Bytes above which a graph contains its weights and is only read by the session. */
const LARGE = 32 << 20;

class NoModel extends Error {
  name = 'NoSuchFile';
}

/** @param {unknown} value @returns {number[]} */
function numbers(value) {
  return [value].flat().filter((item) => typeof item === 'number');
}

/** Convert the sampling options of transformers or onnxruntime-genai. @param {Record<string, any>} given @returns {SamplingOptions} */
function samplingOf(given) {
  if (given.do_sample === false) return { temperature: 0, repetitionPenalty: given.repetition_penalty };
  const named = {
    temperature: given.temperature, topK: given.top_k, topP: given.top_p, minP: given.min_p,
    repetitionPenalty: given.repetition_penalty,
  };
  const known = Object.fromEntries(Object.entries(named).filter(([, value]) => typeof value === 'number'));
  return given.do_sample ? known : { ...known, temperature: 0 };
}

/** Return the language model's part of a configuration with several parts. @param {Record<string, any>} config */
function textPart(config) {
  return config.text_config ?? config.llm_config ?? config.language_config ?? config;
}

/** Return the head sizes in transformers' configuration of a language model. @param {Record<string, any>} text @returns {HeadSizes} */
function headsOf({ num_attention_heads: all, num_key_value_heads: heads = all, hidden_size: width, head_dim: components = width / all }) {
  return { heads, components: Number.isInteger(components) ? components : undefined };
}

/** Default slack: onnxruntime-genai's value on the CPU. */
const SLACK = 16;

/**
 * Parse the sliding window. Caches follow the graph, so `window_size` and `layers` are ignored in favor of the graph's; `alignment` and
 * `pad_value` only describe padding.
 * @param {Record<string, any> | undefined} given `model.decoder.sliding_window`
 * @returns {SlidingWindow}
 */
function slidingOf(given) {
  const slides = given && ['slide_inputs', 'slide_key_value_cache'].find((name) => given[name] ?? true);
  return { slack: given?.cache_slack || SLACK, slides };
}

/**
 * @param {Folder} folder
 * @param {Record<string, any>} config
 * @param {string | undefined} dtype
 * @param {AbortSignal} [signal]
 */
async function graphOf(folder, config, dtype, signal) {
  const asked = dtype ?? config['transformers.js_config']?.dtype;
  const wanted = typeof asked === 'string' ? asked : asked?.decoder_model_merged ?? asked?.model;
  if (wanted !== undefined && !(wanted in SUFFIXES)) {
    throw new RangeError(`dtype: one of ${Object.keys(SUFFIXES).join(', ')}, not '${wanted}'`);
  }
  const tried = [];
  for (const name of wanted ? [wanted] : PREFERRED) {
    for (const stem of ['model', 'decoder_model_merged']) {
      const path = `onnx/${stem}${SUFFIXES[name]}.onnx`;
      if (await folder.has(path, signal)) return path;
      tried.push(path);
    }
  }
  return { tried };
}

/** @param {Folder} folder @param {Record<string, any>} genai @returns {Promise<Repository>} */
async function ofGenai(folder, genai) {
  const { model, search = {} } = genai;
  const decoder = model?.decoder ?? {};
  const { inputs = {}, outputs = {}, filename = 'model.onnx' } = decoder;
  const layers = (/** @type {string} */ pattern, /** @type {string} */ fallback) => (pattern ?? fallback).split('%d');
  const caches = ['key', 'value'].map((part) => /** @type {[string, string]} */ ([
    layers(inputs[`past_${part}_names`], `past_key_values.%d.${part}`).join('%d'),
    layers(outputs[`present_${part}_names`], `present.%d.${part}`).join('%d'),
  ]));
  return {
    model: filename,
    names: {
      ids: inputs.input_ids ?? USUAL.ids, mask: inputs.attention_mask ?? USUAL.mask,
      positions: inputs.position_ids ?? USUAL.positions, logits: outputs.logits ?? USUAL.logits, caches,
    },
    sizes: { heads: decoder.num_key_value_heads, components: decoder.head_size },
    sliding: slidingOf(decoder.sliding_window),
    sampling: samplingOf(search),
    endTokens: numbers(model?.eos_token_id),
    beginToken: numbers(model?.bos_token_id)[0],
    sinks: search.sinks,
    contextLength: model?.context_length ?? search.max_length ?? Infinity,
  };
}

/**
 * @param {Folder} folder
 * @param {string | undefined} dtype
 * @param {AbortSignal} [signal]
 * @returns {Promise<Repository>}
 */
export async function readRepository(folder, dtype, signal) {
  const config = await json(folder, 'config.json', signal);
  const path = config ? await graphOf(folder, config, dtype, signal) : { tried: ['config.json'] };
  if (typeof path !== 'string') {
    if (config && dtype) {
      throw new NoModel(`${folder.name} has no ${path.tried.join(' and no ')}: ask for a dtype that is there, or for none`);
    }
    const genai = await json(folder, 'genai_config.json', signal);
    if (genai) return ofGenai(folder, genai);
    throw new NoModel(`${folder.name} is no folder of a language model: it has neither ${path.tried.join(', ')} nor genai_config.json`);
  }
  const generation = await json(folder, 'generation_config.json', signal) ?? {};
  const text = textPart(config);
  const ends = numbers(generation.eos_token_id ?? config.eos_token_id ?? text.eos_token_id);
  return {
    model: path,
    names: USUAL,
    sizes: headsOf(text),
    sliding: slidingOf(undefined),
    sampling: samplingOf(generation),
    endTokens: ends,
    beginToken: numbers(generation.bos_token_id ?? config.bos_token_id ?? text.bos_token_id)[0],
    sinks: undefined,
    contextLength: text.max_position_embeddings ?? text.n_positions ?? text.n_ctx ?? Infinity,
  };
}

/**
 * Read the graph and its weight files for a session: large files of a remote folder as addresses, so that the session reads them while they
 * load.
 * @param {Folder} folder
 * @param {string} path
 * @param {{signal?: AbortSignal, onProgress?: (path: string, loaded: number, total: number | undefined) => void}} options
 */
export async function readGraph(folder, path, { signal, onProgress }) {
  const fetched = async (/** @type {string} */ name) => {
    const report = (/** @type {number} */ loaded, /** @type {number | undefined} */ total) => onProgress?.(name, loaded, total);
    const blob = await folder.read(name, { signal, onProgress: report });
    if (!blob) throw new NoModel(`${folder.name} has no ${name}`);
    return blob;
  };
  let address = addressOf(folder, path);
  if (address && address.size === undefined && await folder.has(path, signal)) address = addressOf(folder, path);
  if (address && (address.size ?? 0) >= LARGE) return { model: address.url, externalData: [] };
  const model = await fetched(path);
  const parent = path.split('/').slice(0, -1).map((part) => `${part}/`).join('');
  const externalData = [];
  for (const name of (await summaryOf(model, signal)).external) {
    if (/^[/\\]|(^|[/\\])\.\.([/\\]|$)|^[a-z][a-z\d+.-]*:/i.test(name)) continue; // the runtime refuses such a path
    externalData.push({ path: name, data: addressOf(folder, parent + name)?.url ?? await fetched(parent + name) });
  }
  return { model, externalData };
}

/** Read the tokenizer's two files. @param {Folder} folder @param {AbortSignal} [signal] */
export async function readTokenizer(folder, signal) {
  const content = JSON.parse(await (await required(folder, 'tokenizer.json', signal)).text());
  return { content, config: await json(folder, 'tokenizer_config.json', signal) ?? {} };
}
