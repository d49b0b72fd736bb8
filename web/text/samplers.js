// @ts-check
/** Sampler models, which select tokens on the decoder's GPU: their options and inputs. */

import { started } from '../api/client.js';
import { InferenceSession } from '../api/session.js';
import { penalizes } from './sampling.js';

/** @typedef {import('./sampling.js').Rules} Rules */
/** @typedef {import('../api/protocol.js').WireTensor} WireTensor */
/**
 * @typedef {object} SamplerOptions `SamplerOptions` of pyruntime/generate/sampling.py
 * @property {boolean} greedy
 * @property {number} candidates
 * @property {boolean} penalties
 * @property {number} top
 * @property {boolean} log_probability
 * @property {'float32' | 'float16'} dtype
 * @property {'int64' | 'int32'} ids
 */

/** Largest `topK` for which only that many candidates are sorted. */
const LARGEST_SORT = 1024;
const FEWEST = 64;
const EVERY = -1;

/** Lower temperatures count as 0: dividing logits by them would exceed the range of float32. */
const COLDEST = 1e-6;

/** Return the next power of two. @param {number} count */
const power = (count) => 2 ** Math.ceil(Math.log2(count));

/** @param {Rules} rules */
const isGreedy = ({ temperature, topK }) => temperature < COLDEST || Math.floor(topK) === 1;

/** Return the number of logits that topK and topP need sorted. @param {Rules} rules */
function candidatesOf({ topK, topP }) {
  if (topK < 1) return topP < 1 ? EVERY : 0;
  return topK > LARGEST_SORT ? EVERY : Math.max(FEWEST, power(Math.floor(topK)));
}

/**
 * @param {Rules} rules
 * @param {{top: number, logs: boolean}} named number of most likely tokens in the output, and whether the selected one's probability is
 * @param {'float32' | 'float16'} dtype element type of the logits
 * @param {'int64' | 'int32'} ids element type of the ids
 * @returns {SamplerOptions}
 */
export function samplerOf(rules, { top, logs }, dtype, ids) {
  const greedy = isGreedy(rules);
  const candidates = greedy ? 0 : candidatesOf(rules);
  return { greedy, candidates, penalties: penalizes(rules), top: top && power(top), log_probability: logs, dtype, ids };
}

/** Return the output names of a sampler. @param {SamplerOptions} options */
export function outputsOf({ penalties, top, log_probability: logs }) {
  return ['ids', ...(logs ? ['log_probability'] : []), ...(top ? ['top_ids', 'top_log_probabilities'] : []), ...(penalties ? ['counts_out'] : [])];
}

/**
 * Return the sampler inputs that are equal for every token.
 * @param {SamplerOptions} options
 * @param {Rules} rules
 */
export function settingsOf({ greedy, candidates, penalties }, rules) {
  const float = (/** @type {number} */ value) => wire('float32', Float32Array.of(value));
  /** @type {Record<string, WireTensor>} */
  const settings = {};
  if (!greedy) Object.assign(settings, { temperature: float(Math.min(rules.temperature, 1e30)), min_p: float(rules.minP) });
  if (!greedy && candidates) {
    const most = BigInt(Math.min(Math.floor(rules.topK), Number.MAX_SAFE_INTEGER));
    Object.assign(settings, { top_k: wire('int64', BigInt64Array.of(most)), top_p: float(rules.topP) });
  }
  if (penalties) {
    const { repetitionPenalty, presencePenalty, frequencyPenalty } = rules;
    Object.assign(settings, { repetition: float(repetitionPenalty), presence: float(presencePenalty), frequency: float(frequencyPenalty) });
  }
  return settings;
}

/** @param {import('../pyruntime.js').TensorType} type @param {ArrayBufferView} array @param {number[]} [dims] @returns {WireTensor} */
function wire(type, array, dims = []) {
  return { type, dims, data: /** @type {ArrayBuffer} */ (array.buffer) };
}

/**
 * Return the initial counts of a sampler: -1 for tokens of the prompt.
 * @param {readonly number[]} ids ids of prompt and text so far
 * @param {number} prompt number of ids of the prompt
 * @param {number} vocabulary
 */
export function countsOf(ids, prompt, vocabulary) {
  const counts = new Int32Array(vocabulary);
  for (const [at, id] of ids.entries()) counts[id] = at < prompt ? -1 : Math.max(counts[id], 0) + 1;
  return wire('int32', counts, [1, vocabulary]);
}

/** The samplers of one decoder. */
export class Samplers {
  /** @type {Map<string, Promise<InferenceSession | null>>} */
  #made = new Map();

  /**
   * Return the sampler for these options; null where tokens are chosen on the host (`create`).
   * @param {InferenceSession} decoder
   * @param {SamplerOptions} options
   */
  of(decoder, options) {
    const key = JSON.stringify(options);
    const made = this.#made.get(key) ?? create(decoder, options);
    this.#made.set(key, made);
    made.then((sampler) => sampler ?? this.#made.delete(key), () => this.#made.delete(key));
    return made;
  }

  async release() {
    const made = [...this.#made.values()];
    this.#made.clear();
    for (const session of made) await session.then((one) => one?.release(), () => {});
  }
}

/**
 * Null where the decoder is not on the GPU, and as long as a decoder over a compiled plan has no Python to write the model.
 * @param {InferenceSession} decoder
 * @param {SamplerOptions} options
 */
async function create(decoder, options) {
  const host = InferenceSession.hostOf(decoder);
  if (!host) return null;
  const { owner, handle, cachePlan } = host;
  if ('compiled' in owner && owner.compiled && !started()?.isRunning) return null;
  const write = () => owner.call('call', { function: 'sampler', arguments: [handle, options] });
  const model = cachePlan ? await (await import('../plans/caching.js')).cachedModel(`sampler ${JSON.stringify(options)}`, write) : await write();
  return model && InferenceSession.create(model, { extra: { 'pyruntime.host_work': 0 }, cachePlan });
}
