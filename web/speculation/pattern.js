// @ts-check
/**
 * Learn how the inputs of a run follow from the run before, as in a text generation loop: caches are outputs of that run, the mask is
 * longer by one, positions increment, and the token is the most likely one of the logits. Rules are learned from runs, never assumed.
 */

/**
 * @typedef {import('../gpu/replay.js').Fed} Fed
 * @typedef {import('../worker/tensors.js').Remote} Remote
 *
 * @typedef {object} Seen a run with its results
 * @property {Record<string, Fed>} feeds
 * @property {string} requested key of its output names and of those that stay on the GPU
 * @property {Map<string, Remote>} staying outputs on the GPU, by name
 * @property {number} best index of the greatest of its last logits; -1: no logits
 *
 * @typedef {object} Rule how an input may follow from the run before
 * @property {boolean} same the same value
 * @property {boolean} longer the same value with its last element repeated
 * @property {boolean} next its last element, incremented
 * @property {boolean} chosen the index of the greatest logit
 * @property {string} made name of the output that it equals; '': none
 *
 * @typedef {Map<string, Rule>} Rules by input
 */

/** @type {Record<string, BigInt64ArrayConstructor | Int32ArrayConstructor>} */
const INTEGERS = { int64: BigInt64Array, int32: Int32Array };

/** Minimum number of elements in a row of logits. */
const SMALLEST_VOCABULARY = 8;

/** @param {readonly number[]} dims */
const countOf = (dims) => dims.reduce((product, dim) => product * dim, 1);

/** The elements of an integer tensor on the host, whose memory may be larger. @param {Fed | undefined} fed */
function integers(fed) {
  const type = fed && INTEGERS[fed.type];
  return type && fed.data instanceof ArrayBuffer ? new type(fed.data).subarray(0, countOf(fed.dims)) : null;
}

/** Element size in bytes, for types of inputs other than caches. @type {Record<string, number>} */
const WIDTHS = { int64: 8, int32: 4, float32: 4, float16: 2, bool: 1 };

/** @param {Fed} fed @returns {Uint8Array | null} */
function bytesOf({ type, dims, data }) {
  const width = WIDTHS[type];
  return width && data instanceof ArrayBuffer ? new Uint8Array(data, 0, width * countOf(dims)) : null;
}

/** @param {readonly number[]} some @param {readonly number[]} others */
const isSameDims = (some, others) => some.length === others.length && some.every((dim, axis) => dim === others[axis]);

/** @param {ArrayLike<unknown>} some @param {ArrayLike<unknown>} others @param {number} count */
function startAlike(some, others, count) {
  for (let i = 0; i < count; i++) if (some[i] !== others[i]) return false;
  return true;
}

/** Return whether two tensors are the same, or equal. @param {Fed | undefined} some @param {Fed} other */
export function isEqual(some, other) {
  if (!some || some.type !== other.type || !isSameDims(some.dims, other.dims)) return false;
  if (some.remote || other.remote) return some.remote === other.remote;
  const [a, b] = [bytesOf(some), bytesOf(other)];
  return a !== null && b !== null && startAlike(a, b, a.length);
}

/** The element of an integer tensor of one element; NaN for other tensors. @param {Fed} fed */
export function numberIn(fed) {
  const elements = integers(fed);
  return elements?.length === 1 ? Number(elements[0]) : NaN;
}

/**
 * Return the rules that hold for an input.
 * @param {Seen} before
 * @param {string} name
 * @param {Fed} fed
 * @returns {Rule}
 */
function ruleOf(before, name, fed) {
  const old = before.feeds[name];
  const rule = { same: isEqual(old, fed), longer: false, next: false, chosen: false, made: '' };
  if (fed.remote) {
    for (const [output, remote] of before.staying) if (remote === fed.remote) rule.made = output;
    return rule;
  }
  const [elements, earlier] = [integers(fed), integers(old)];
  if (!elements || !earlier || old.type !== fed.type) return rule;
  const [count, last] = [elements.length, earlier.length - 1];
  rule.longer = last >= 0 && count === last + 2 && fed.dims.at(-1) === count && fed.dims.length === old.dims.length
    && startAlike(elements, earlier, last + 1) && elements[count - 1] === earlier[last];
  rule.next = last >= 0 && count === 1 && Number(elements[0]) === Number(earlier[last]) + 1;
  rule.chosen = count === 1 && Number(elements[0]) === before.best;
  return rule;
}

/**
 * Return the rules that still hold for every input after a run of `feeds` followed `before`; null if none holds for an input.
 * @param {Rules | null} known rules from earlier runs; null: none yet
 * @param {Seen} before
 * @param {Record<string, Fed>} feeds
 * @returns {Rules | null}
 */
function learned(known, before, feeds) {
  if (known && known.size !== Object.keys(feeds).length) return null;
  /** @type {Rules} */
  const rules = new Map();
  for (const [name, fed] of Object.entries(feeds)) {
    const rule = ruleOf(before, name, fed);
    const earlier = known?.get(name);
    if (known && !earlier) return null;
    if (earlier) {
      for (const kind of /** @type {const} */ (['same', 'longer', 'next', 'chosen'])) rule[kind] &&= earlier[kind];
      if (rule.made !== earlier.made) rule.made = '';
    }
    if (!(rule.same || rule.longer || rule.next || rule.chosen || rule.made)) return null;
    rules.set(name, rule);
  }
  return rules;
}

/** Return the name of the token's input; '' unless exactly one input is a token. @param {Rules} rules */
export function tokenOf(rules) {
  const found = [...rules].filter(([, { chosen }]) => chosen);
  return found.length === 1 ? found[0][0] : '';
}

/** The rules of a session's runs. */
export class Pattern {
  /** Rules by which the last run followed from the one before; null: none. @type {Rules | null} */
  rules = null;
  /** The last run, once its results are known. @type {Seen | null} */
  last = null;

  /**
   * Learn from the inputs of the next run; return whether it follows from the last one by rules.
   * @param {Record<string, Fed> | null} feeds
   * @param {string} requested
   */
  learn(feeds, requested) {
    const { last } = this;
    const rules = feeds && last?.requested === requested ? learned(this.rules, last, feeds) : null;
    this.rules = rules && tokenOf(rules) ? rules : null;
    this.last = null;
    return this.rules !== null;
  }
}

/** The feed with its last element repeated. @param {Fed} fed @returns {Fed} */
function longer({ type, dims, data }) {
  const count = countOf(dims);
  const [memory, width] = [/** @type {ArrayBuffer} */ (data), WIDTHS[type]];
  const made = new Uint8Array(memory.byteLength >= (count + 1) * width ? memory.slice(0) : new ArrayBuffer(2 * (count + 1) * width));
  made.set(new Uint8Array(memory, 0, count * width));
  made.copyWithin(count * width, (count - 1) * width, count * width);
  return { type, dims: [...dims.slice(0, -1), count + 1], data: made.buffer };
}

/** @param {Fed} fed @returns {Fed} */
function next({ type, dims, data }) {
  const elements = /** @type {BigInt64Array | Int32Array} */ (integers({ type, dims, data }));
  const value = Number(elements[elements.length - 1]) + 1;
  const made = type === 'int64' ? BigInt64Array.of(BigInt(value)) : Int32Array.of(value);
  return { type, dims: dims.map(() => 1), data: /** @type {ArrayBuffer} */ (made.buffer) };
}

/**
 * Predict the feeds of the next run by rules; null if a cache is not on the GPU. The token is unknown: 0.
 * @param {Rules} rules
 * @param {Record<string, Fed>} feeds feeds of the run before
 * @param {Map<string, Remote>} staying its outputs on the GPU
 * @returns {Record<string, Fed> | null}
 */
export function predicted(rules, feeds, staying) {
  /** @type {Record<string, Fed>} */
  const found = {};
  for (const [name, rule] of rules) {
    const fed = feeds[name];
    if (rule.made) {
      const remote = staying.get(rule.made);
      if (!remote) return null;
      found[name] = { type: remote.type, dims: remote.dims, remote };
    } else if (rule.chosen) {
      found[name] = { type: fed.type, dims: fed.dims.map(() => 1), data: new ArrayBuffer(WIDTHS[fed.type]) };
    } else {
      found[name] = rule.next ? next(fed) : rule.longer ? longer(fed) : fed;
    }
  }
  return found;
}

/** Return the index of the greatest element, the first of equal ones. @param {Float32Array | Int16Array} row */
function greatest(row) {
  let best = 0;
  for (let i = 1; i < row.length; i++) if (row[i] > row[best]) best = i;
  return best;
}

/** Map the bits of a float16 to an integer of the same order. @param {number} bits */
const ordered = (bits) => (bits < 0 ? -(bits & 0x7fff) : bits);

/**
 * Return the index of the greatest element of the last row; -1 if the elements are not floats.
 * @param {{type: string, dims: number[], data: ArrayBuffer}} logits
 */
export function bestOf({ type, dims, data }) {
  const count = dims.at(-1) ?? 0;
  const elements = type === 'float32' ? new Float32Array(data) : type === 'float16' ? new Int16Array(data) : null;
  if (!elements || !count || elements.length < count) return -1;
  const row = elements.subarray(elements.length - count);
  return greatest(row instanceof Int16Array ? row.map(ordered) : row);
}

/** Return whether a value may be the logits of one sequence. @param {any} value */
export function isLogits(value) {
  const { type, dims, data } = value ?? {};
  return (type === 'float32' || type === 'float16') && data instanceof ArrayBuffer && dims.length === 3 && dims[0] === 1
    && dims[2] >= SMALLEST_VOCABULARY;
}

/** Return whether a run is the first of a text, with empty caches. @param {Record<string, Fed>} feeds */
export const begins = (feeds) => Object.values(feeds).some(({ dims }) => dims.includes(0));

/**
 * Return the type of the token's input; in the first run of a text, that of a likely candidate.
 * @param {Record<string, Fed>} feeds
 * @param {string | null} token
 */
export function typeOfIds(feeds, token) {
  const found = token ? feeds[token] : Object.values(feeds).find(({ type, dims }) => type in INTEGERS && dims.length === 2);
  return /** @type {'int64' | 'int32' | undefined} */ (found && found.type in INTEGERS ? found.type : undefined);
}

/** @param {string} type of ids */
export const bytesOfId = (type) => INTEGERS[type].BYTES_PER_ELEMENT;
