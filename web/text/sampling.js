// @ts-check
/**
 * Select the next token from logits: penalties, temperature, top-k, top-p, min-p in that order, as in transformers; then sampling by a
 * random number generator that depends only on the seed and on the number of tokens.
 */

/** @typedef {import('../pyruntime.js').SamplingOptions} SamplingOptions */
/** @typedef {{id: number, logProbability: number}} Candidate */
/** @typedef {Required<Pick<SamplingOptions, 'temperature' | 'topK' | 'topP' | 'minP' | 'repetitionPenalty' | 'presencePenalty' | 'frequencyPenalty'>>} Rules */

/** @type {Rules} */
const NEUTRAL = {
  temperature: 1, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1, presencePenalty: 0, frequencyPenalty: 0,
};

/** Range of each option. @type {Record<keyof Rules, [low: number, high: number]>} */
const RANGES = {
  temperature: [0, Infinity], topK: [0, Infinity], topP: [0, 1], minP: [0, 1], repetitionPenalty: [Number.MIN_VALUE, Infinity],
  presencePenalty: [-Infinity, Infinity], frequencyPenalty: [-Infinity, Infinity],
};

/**
 * @param {SamplingOptions} advised options of the model's folder
 * @param {SamplingOptions} given options of the caller
 * @returns {Rules}
 */
export function rulesOf(advised, given) {
  const rules = { ...NEUTRAL };
  for (const name of /** @type {(keyof Rules)[]} */ (Object.keys(NEUTRAL))) {
    const value = given[name] ?? advised[name] ?? NEUTRAL[name];
    const [low, high] = RANGES[name];
    if (typeof value !== 'number' || !(value >= low && value <= high)) {
      throw new RangeError(`${name} must be a number from ${low} to ${high}, not ${value}`);
    }
    rules[name] = value;
  }
  return rules;
}

/** Hash two numbers to 32 bits. Source: the finalizer of MurmurHash3, applied twice. @param {number} seed @param {number} counter */
function mix(seed, counter) {
  let value = seed | 0;
  for (const part of [counter, 0x9e3779b9]) {
    value = Math.imul(value ^ part, 0x85ebca6b);
    value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
    value ^= value >>> 16;
  }
  return value >>> 0;
}

/** Return the random number of a draw, in [0, 1). @param {number} seed @param {number} draw */
export function uniform(seed, draw) {
  return (mix(seed, 2 * draw) * 2 ** 21 + (mix(seed ^ 0x5bd1e995, 2 * draw + 1) >>> 11)) / 2 ** 53;
}

/** Return whether penalties change logits. @param {Rules} rules */
export function penalizes({ repetitionPenalty, presencePenalty, frequencyPenalty }) {
  return repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
}

/**
 * Apply penalties: for repetition to all tokens so far, others to generated tokens.
 * @param {Float32Array} logits modified in place
 * @param {Rules} rules
 * @param {readonly number[]} ids prompt and generated tokens
 * @param {number} prompt number of ids of the prompt
 */
export function penalize(logits, { repetitionPenalty, presencePenalty, frequencyPenalty }, ids, prompt) {
  if (repetitionPenalty !== 1) {
    for (const id of new Set(ids)) logits[id] = logits[id] > 0 ? logits[id] / repetitionPenalty : logits[id] * repetitionPenalty;
  }
  if (!presencePenalty && !frequencyPenalty) return;
  for (const id of new Set(ids.slice(prompt))) logits[id] -= presencePenalty;
  for (const id of ids.slice(prompt)) logits[id] -= frequencyPenalty;
}

/** @param {Float32Array} logits @returns {number} ln of the sum of exp(logit) */
export function logSumExp(logits) {
  let largest = -Infinity;
  for (const logit of logits) if (logit > largest) largest = logit;
  if (!Number.isFinite(largest)) return largest;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - largest);
  return largest + Math.log(sum);
}

/** Return the index of the largest logit, the first of equal ones. @param {Float32Array} logits */
function argmax(logits) {
  let best = 0;
  for (let id = 1; id < logits.length; id++) if (logits[id] > logits[best]) best = id;
  return best;
}

/** Return the ids of the largest logits in descending order; of equal ones the lower id first. @param {Float32Array} logits @param {number} count */
export function largest(logits, count) {
  const order = (/** @type {number} */ a, /** @type {number} */ b) => logits[b] - logits[a] || a - b;
  if (count >= logits.length) return [...logits.keys()].sort(order);
  /** @type {number[]} */
  let chosen = [];
  let least = -Infinity;
  for (let id = 0; id < logits.length; id++) {
    if (!(logits[id] > least) && chosen.length >= count) continue;
    chosen.push(id);
    if (chosen.length < 2 * count + 64) continue;
    chosen = chosen.sort(order).slice(0, count);
    least = logits[chosen[count - 1]];
  }
  return chosen.sort(order).slice(0, count);
}

/**
 * Return the tokens that the filters keep, most likely first, with weights exp((logit - largest) / temperature).
 * @param {Float32Array} logits
 * @param {Rules} rules
 */
function admitted(logits, { temperature, topK, topP, minP }) {
  const top = logits[argmax(logits)];
  const weight = (/** @type {number} */ id) => Math.exp((logits[id] - top) / temperature);
  const limit = topK > 0 ? Math.min(Math.floor(topK), logits.length) : logits.length;
  if (topP >= 1 && minP <= 0 && limit === logits.length) return { ids: null, weight };
  let total = 0;
  if (topP < 1 && limit === logits.length) for (let id = 0; id < logits.length; id++) total += weight(id);
  for (let count = Math.min(limit, 256); ; count = Math.min(limit, count * 16)) {
    const ids = largest(logits, count);
    if (topP < 1 && limit < logits.length) total = largest(logits, limit).reduce((sum, id) => sum + weight(id), 0);
    let [sum, kept] = [0, 0];
    while (kept < ids.length && (kept === 0 || ((topP >= 1 || sum < topP * total) && weight(ids[kept]) >= minP))) {
      sum += weight(ids[kept]);
      kept += 1;
    }
    if (kept < ids.length || count === limit) return { ids: ids.slice(0, kept), weight };
  }
}

/**
 * @param {Float32Array} logits logits after penalties
 * @param {Rules} rules
 * @param {() => number} random returns a number in [0, 1)
 * @returns {number} the token
 */
export function draw(logits, rules, random) {
  if (rules.temperature === 0) return argmax(logits);
  const { ids, weight } = admitted(logits, rules);
  const among = ids ?? logits.keys();
  let total = 0;
  for (const id of among) total += weight(id);
  let left = random() * total;
  let last = -1;
  for (const id of ids ?? logits.keys()) {
    const mass = weight(id);
    if (mass === 0) continue;
    last = id;
    left -= mass;
    if (left < 0) return id;
  }
  return last;
}
