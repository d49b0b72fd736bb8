// @ts-check
/**
 * Greedy decoding, one run for each token: logits are read back, caches stay on the GPU as tensors that the next run is fed.
 * `decodeResult` has the result. Parameters of the address:
 *
 *     models    folders as bench/decoders.py writes them, comma separated; NAME is ../bench-models/NAME/
 *     engines   ours, peer (both), one after the other, each in a frame of its own
 *     sessions  of each model, one after the other (2): the first one compiles
 *     prompt    tokens of the prompt (128)
 *     tokens    to be written (64)
 *     post      1: POST the result to /result/NAME
 *     name      NAME (decode)
 *
 * With `engine` it is the page of that frame. Where a folder has expected.json (bench/expected.py), `equal` counts the first tokens
 * that are as there.
 */

import { modules } from './engines.js';
import { loadFrame } from './frames.js';
import { median, quantile } from './quantiles.js';

/**
 * A text: milliseconds until the session is ready, of the prompt, of the first token after it, and of those from the fourth on
 * (median, 95 %); the tokens.
 * @typedef {{create_ms: number, prompt_ms: number, next_ms: number, token_ms: number, p95_ms: number, ids: number[],
 *   equal: number | null}} Text
 *
 * @typedef {{model: string, session: number, text?: Text, error?: string}} Told
 */

const parameters = new URL(location.href).searchParams;
const number = (/** @type {string} */ name, /** @type {number} */ usual) => Number(parameters.get(name) ?? usual);
const list = (/** @type {string} */ name, usual = '') => (parameters.get(name) ?? usual).split(',').filter(Boolean);

/** Tokens after the prompt that are not counted: they may still compile. */
const WARM_UP = 3;

/** The index of the largest of the last `vocabulary` logits. @param {Float32Array} logits @param {number} vocabulary */
function largest(logits, vocabulary) {
  const row = logits.subarray(logits.length - vocabulary);
  let best = 0;
  for (let id = 1; id < vocabulary; id++) if (row[id] > row[best]) best = id;
  return best;
}

/** Names of the caches of a decoder: as they go in, and as they come out. @param {any} decoder @returns {[string, string][]} */
function caches({ inputs, outputs, num_hidden_layers: layers }) {
  const named = (/** @type {string} */ name, /** @type {number} */ layer) => name.replace('%d', String(layer));
  return Array.from({ length: layers }, (_, layer) => /** @type {[string, string][]} */ ([
    [named(inputs.past_key_names, layer), named(outputs.present_key_names, layer)],
    [named(inputs.past_value_names, layer), named(outputs.present_value_names, layer)],
  ])).flat();
}

/** @param {any} api @param {string} folder @param {any} decoder */
async function open(api, folder, decoder) {
  const data = `${folder}model.onnx.data`;
  const { ok } = await fetch(data, { method: 'HEAD' });
  return api.InferenceSession.create(`${folder}model.onnx`, {
    executionProviders: ['webgpu'],
    ...(ok ? { externalData: [{ path: 'model.onnx.data', data }] } : {}),
    preferredOutputLocation: Object.fromEntries(caches(decoder).map(([, present]) => [present, 'gpu-buffer'])),
  });
}

/** @param {any} api @param {any} session @param {any} decoder @param {number} vocabulary */
async function write({ Tensor }, session, decoder, vocabulary) {
  const dims = [1, decoder.num_key_value_heads, 0, decoder.head_size];
  const names = caches(decoder);
  let past = Object.fromEntries(names.map(([name]) => [name, new Tensor('float32', new Float32Array(0), dims)]));
  let fed = Array.from({ length: number('prompt', 128) }, (_, at) => (at * 7919 + 13) % (vocabulary - 3) + 3);
  let total = 0;
  /** @type {number[]} */
  const ids = [];
  const times = [];
  while (ids.length < number('tokens', 64)) {
    const began = performance.now();
    total += fed.length;
    const results = await session.run({
      ...past,
      input_ids: new Tensor('int64', BigInt64Array.from(fed, BigInt), [1, fed.length]),
      attention_mask: new Tensor('int64', new BigInt64Array(total).fill(1n), [1, total]),
    });
    const id = largest(await results.logits.getData(), vocabulary);
    for (const tensor of Object.values(past)) tensor.dispose();
    past = Object.fromEntries(names.map(([name, present]) => [name, results[present]]));
    ids.push(id);
    fed = [id];
    times.push(performance.now() - began);
  }
  for (const tensor of Object.values(past)) tensor.dispose();
  return { ids, times };
}

/** @param {any} api @param {string} model @returns {Promise<Text>} */
async function measure(api, model) {
  const folder = new URL(`../bench-models/${model}/`, location.href).href;
  const config = (await (await fetch(`${folder}genai_config.json`)).json()).model;
  const expected = await fetch(`${folder}expected.json`);
  const told = expected.ok ? await expected.json() : null;
  const began = performance.now();
  const session = await open(api, folder, config.decoder);
  const create_ms = performance.now() - began;
  const { ids, times } = await write(api, session, config.decoder, config.vocab_size).finally(() => session.release());
  const [prompt_ms, next_ms, ...rest] = times;
  const counted = rest.slice(WARM_UP - 1);
  const equal = told?.prompt === number('prompt', 128) ? same(ids, told.ids) : null;
  return { create_ms, prompt_ms, next_ms, token_ms: median(counted), p95_ms: quantile(counted, 0.95), ids, equal };
}

/** How many of the first tokens are the same. @param {number[]} ids @param {number[]} others */
function same(ids, others) {
  const differs = ids.findIndex((id, at) => id !== others[at]);
  return differs < 0 ? ids.length : differs;
}

/** All texts of one engine. @param {string} engine @returns {Promise<Told[]>} */
async function engineResults(engine) {
  const api = await modules[engine]();
  /** @type {Told[]} */
  const told = [];
  for (const model of list('models')) {
    for (let session = 1; session <= number('sessions', 2); session++) {
      try {
        told.push({ model, session, text: await measure(api, model) });
      } catch (error) {
        told.push({ model, session, error: String(error) });
      }
    }
  }
  return told;
}

/** What the frame of an engine tells. @param {string} engine @returns {Promise<Told[]>} */
async function inFrame(engine) {
  const address = new URL(location.href);
  address.searchParams.set('engine', engine);
  const frame = await loadFrame(address.href);
  const told = await /** @type {any} */ (frame.contentWindow).decodeResult;
  frame.remove();
  return told;
}

/** @param {Record<string, Told[]>} told */
function show({ ours, peer = [] }) {
  const place = document.getElementById('log');
  for (const [at, { model, session, text, error }] of (ours ?? []).entries()) {
    const other = peer[at]?.text;
    const ratio = (/** @type {'prompt_ms' | 'token_ms'} */ of) => (text && other ? ` (${(other[of] / text[of]).toFixed(1)})` : '');
    const counts = text ? [`of ${text.ids.length} tokens as expected ${text.equal ?? '?'}`, ...(other ? [`theirs ${other.equal ?? '?'}`,
      `both the same ${same(text.ids, other.ids)}`] : [])].join(', ') : '';
    const line = text
      ? `prompt ${text.prompt_ms.toFixed(1)}${ratio('prompt_ms')}, token ${text.token_ms.toFixed(2)} ms${ratio('token_ms')}; ${counts}`
      : error;
    if (place) place.textContent += `${model} ${session}: ${line}\n`;
  }
}

async function main() {
  const engine = parameters.get('engine');
  if (engine) return engineResults(engine);
  /** @type {Record<string, Told[]>} */
  const engines = {};
  for (const name of list('engines', 'ours,peer')) engines[name] = await inFrame(name);
  show(engines);
  const result = { userAgent: navigator.userAgent, date: new Date().toISOString(), engines };
  if (parameters.get('post')) {
    await fetch(`/result/${parameters.get('name') ?? 'decode'}`, { method: 'POST', body: JSON.stringify(result) });
  }
  return result;
}

globalThis.decodeResult = main();
