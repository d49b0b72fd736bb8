// @ts-check
/** A decoder with its caches: computes the logits that follow given tokens; caches stay on the GPU. */

import { InferenceSession } from '../api/session.js';
import { Tensor } from '../api/tensor.js';
import { fromWire, toWire } from '../api/marshalling.js';
import { LocalCaches } from './local.js';
import { Samplers } from './samplers.js';

/** @typedef {import('../pyruntime.js').ValueMetadata} ValueMetadata */
/** @typedef {import('./repository.js').Names} Names */
/** @typedef {import('./repository.js').HeadSizes} HeadSizes */
/** @typedef {import('./repository.js').SlidingWindow} SlidingWindow */
/** @typedef {{names: Names, sizes: HeadSizes, sliding: SlidingWindow}} Naming properties of a repository's decoder */
/** @typedef {{input: ValueMetadata, output: string}} Cache */

/** Prompt tokens that are computed at a time. */
const CHUNK = 256;

/** Inputs with the number of positions whose logits are wanted. */
const KEPT_LOGITS = ['num_logits_to_keep', 'logits_to_keep'];

/** Inputs other than ids, mask, positions and caches. */
const OTHERS = ['use_cache_branch', ...KEPT_LOGITS];

class NotDecoder extends Error {
  name = 'InvalidGraph';
}

/** Return the name of the output that updates a cache. @param {string} name @param {Names} names @param {readonly string[]} outputs */
function presentOf(name, { caches }, outputs) {
  for (const [past, present] of caches) {
    const [before, after = ''] = past.split('%d');
    if (!name.startsWith(before) || !name.endsWith(after)) continue;
    const middle = name.slice(before.length, name.length - after.length);
    const found = past.includes('%d') ? present.replace('%d', middle) : present + middle;
    if (outputs.includes(found)) return found;
  }
  return null;
}

/** Convert the bits of a float16, for browsers without Float16Array. @param {number} bits */
function fromHalf(bits) {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}

/** @param {Tensor} tensor @param {number} count number of elements, the last ones @returns {Float32Array} a copy */
function floats({ type, data }, count) {
  const part = /** @type {any} */ (data).slice(-count);
  if (type === 'float32' || part.constructor.name === 'Float16Array') return Float32Array.from(part);
  if (type === 'float16') return Float32Array.from(part, fromHalf);
  if (type === 'bfloat16') return new Float32Array(Uint32Array.from(part, (bits) => bits << 16).buffer);
  throw new NotDecoder(`logits are floating point numbers, not ${type}`);
}

/** The state of one text on the GPU. */
export class Turn {
  /** @type {Map<string, Tensor>} */
  caches = new Map();
  /** The tokens in the caches. @type {number[]} */
  ids = [];
  /** Number of leading tokens whose rows were released because no later token attends to them. */
  begin = 0;
  /** The step in progress. @type {Promise<unknown>} */
  busy = Promise.resolve();
  /** The source of tokens that uses these caches. @type {import('./tokens.js').Tokens | null} */
  tokens = null;

  dispose() {
    for (const tensor of this.caches.values()) tensor.dispose();
    this.caches.clear();
    this.ids = [];
    this.begin = 0;
  }

  /** Rows in the caches. */
  get rows() {
    return this.ids.length - this.begin;
  }
}

export class Decoder {
  #rewinder;
  #rows;
  #sizes;

  /** @param {InferenceSession} session @param {Naming} naming @param {Cache[]} caches */
  constructor(session, { names, sizes, sliding }, caches) {
    const facts = InferenceSession.decoderOf(session);
    this.session = session;
    /** Caches that can be trimmed; null: a layer attends to all rows. */
    this.local = facts?.local ? new LocalCaches(facts.local) : null;
    /** Number of positions that the model supports. */
    this.positions = facts?.positions ?? Infinity;
    /** Rows of caches that only hold a window. */
    this.#rows = Object.fromEntries(Object.entries(facts?.rows ?? {}).map(([name, rows]) => [name, rows + sliding.slack]));
    this.names = names;
    this.caches = caches;
    this.#sizes = sizes;
    this.inputs = new Map(session.inputMetadata.map((input) => [input.name, input]));
    this.samplers = new Samplers();
    this.#rewinder = import('./rewind.js').then(({ Rewinder }) => new Rewinder(InferenceSession.hostOf(session)?.cachePlan));
    this.#rewinder.catch(() => {}); // the caller that awaits it reports the error
    const known = [names.ids, names.mask, names.positions, ...OTHERS];
    const strange = session.inputNames.filter((name) => !known.includes(name) && !caches.some(({ input }) => input.name === name));
    if (strange.length || !this.inputs.has(names.ids) || !session.outputNames.includes(names.logits)) {
      const what = strange.length ? `has an input ${strange.join(', ')}` : `has no ${names.ids} or no ${names.logits}`;
      throw new NotDecoder(`the model is no decoder of text alone: it ${what}`);
    }
    const fixed = [this.inputs.get(names.ids)?.shape[1], ...caches.map(({ input: { name, shape } }) => (name in this.#rows ? '' : shape[2]))];
    if (sliding.slides && fixed.some((size) => typeof size === 'number')) {
      throw new NotDecoder(`genai_config.json: model.decoder.sliding_window.${sliding.slides} is not followed: `
        + 'the model takes a prompt in windows of a fixed size');
    }
  }

  /**
   * @param {Blob | string} model
   * @param {{path: string, data: Blob | string}[]} externalData
   * @param {Naming} naming
   * @param {import('../pyruntime.js').SessionOptions} options
   */
  static async create(model, externalData, naming, options) {
    const { ids, mask, positions } = naming.names;
    const expects = { staying: null, text: true, names: { mask, positions, others: [ids, ...OTHERS] } };
    const extra = { 'pyruntime.expects': JSON.stringify(expects), ...options.extra };
    const session = await InferenceSession.create(model, { ...options, extra, externalData, preferredOutputLocation: 'gpu-buffer' });
    try {
      const caches = session.inputMetadata.flatMap((input) => {
        const output = presentOf(input.name, naming.names, session.outputNames);
        return output ? [{ input, output }] : [];
      });
      return new Decoder(session, naming, caches);
    } catch (error) {
      await session.release();
      throw error;
    }
  }

  /**
   * Return the logits of the token after `ids`.
   * @param {Turn} turn its caches hold the tokens before `ids`
   * @param {readonly number[]} ids at least one
   * @param {AbortSignal} [signal] checked between parts of a long prompt
   * @returns {Promise<Float32Array>}
   */
  async step(turn, ids, signal) {
    const last = ids.length - 1;
    if (!this.caches.length) return this.#run(turn, [...turn.ids.splice(0), ...ids], true);
    await this.prefill(turn, ids.slice(0, last), signal);
    return this.#run(turn, ids.slice(last), true);
  }

  /**
   * Compute `ids` without their logits.
   * @param {Turn} turn its caches hold the tokens before `ids`
   * @param {readonly number[]} ids
   * @param {AbortSignal} [signal] checked between parts
   */
  async prefill(turn, ids, signal) {
    const chunk = Math.min(CHUNK, this.local?.chunk ?? CHUNK);
    for (let at = 0; at < ids.length; at += chunk) {
      await this.#run(turn, ids.slice(at, at + chunk), false);
      signal?.throwIfAborted();
    }
  }

  /**
   * Element types of ids and logits, and the vocabulary size if the model states it; null if the inputs are not integers of one text, or
   * caches are moved on the host: then only `step` works.
   */
  get types() {
    const { ids, mask, positions, logits } = this.names;
    const scores = this.session.outputMetadata.find(({ name }) => name === logits);
    const made = [ids, mask, positions].flatMap((name) => this.inputs.get(name) ?? []);
    const fits = this.caches.length && !this.#hasWindows && made.every(({ type, shape }) => ['int64', 'int32'].includes(type) && shape.length === 2)
      && scores && ['float32', 'float16'].includes(scores.type) && scores.shape.length === 3;
    if (!fits) return null;
    const words = scores.shape[2];
    return {
      ids: /** @type {'int64' | 'int32'} */ (this.inputs.get(ids)?.type),
      logits: /** @type {'float32' | 'float16'} */ (scores.type),
      vocabulary: typeof words === 'number' ? words : null,
    };
  }

  /**
   * Return the arguments of a `decode` request (`DecodeArguments` of protocol.d.ts): names, caches and first token.
   * @param {Turn} turn its caches hold the tokens before `first`
   * @param {number} first
   */
  loop(turn, first) {
    const { owner, handle } = /** @type {NonNullable<ReturnType<typeof InferenceSession.hostOf>>} */ (InferenceSession.hostOf(this.session));
    const { ids, mask, positions, logits } = this.names;
    const wire = (/** @type {string} */ name, /** @type {Tensor} */ tensor) => toWire(name, tensor, owner.holder, owner.sharesBuffers);
    const feeds = this.#feeds(turn, [first]);
    const made = (/** @type {string} */ name) => (this.inputs.has(name) ? { name, type: this.inputs.get(name)?.type } : null);
    return {
      decoder: handle,
      ids: { ...made(ids), first },
      mask: made(mask),
      positions: made(positions),
      branch: this.inputs.has('use_cache_branch') ? 'use_cache_branch' : null,
      fixed: Object.fromEntries(KEPT_LOGITS.flatMap((name) => (name in feeds ? [[name, wire(name, feeds[name])]] : []))),
      logits,
      caches: this.caches.map(({ input: { name }, output }) => ({ input: name, output, given: wire(name, feeds[name]) })),
      length: turn.rows,
    };
  }

  /**
   * Give a turn the caches of a finished loop.
   * @param {Turn} turn
   * @param {Record<string, any>} caches caches by input name; none: the turn becomes empty
   * @param {readonly number[]} ids the tokens that the caches cover
   * @param {number} begin number of leading tokens without rows
   */
  restore(turn, caches, ids, begin) {
    const { memory } = /** @type {NonNullable<ReturnType<typeof InferenceSession.hostOf>>} */ (InferenceSession.hostOf(this.session));
    for (const [name, cache] of Object.entries(caches)) turn.caches.set(name, fromWire(cache, memory));
    turn.ids = turn.caches.size ? [...ids] : [];
    turn.begin = turn.caches.size ? begin : 0;
  }

  /** Return whether caches without rows of the first `begin` tokens suffice after `length` tokens. @param {number} begin @param {number} length */
  reaches(begin, length) {
    return length > begin && (!begin || length - begin >= /** @type {LocalCaches} */ (this.local).kept);
  }

  /** Release cache rows that no later token attends to. @param {Turn} turn */
  async trim(turn) {
    const gone = this.local?.gone(turn.rows) ?? 0;
    if (!gone) return;
    const rewinder = await this.#rewinder;
    for (const [name, cache] of turn.caches) {
      const rotation = /** @type {LocalCaches} */ (this.local).rotation(name, gone, cache.dims[3]);
      turn.caches.set(name, await (rotation ? rewinder.turned(cache, gone, rotation) : rewinder.last(cache, gone)));
      cache.dispose();
    }
    turn.begin += gone;
  }

  get #hasWindows() {
    return Object.keys(this.#rows).length > 0;
  }

  /**
   * Rewind a turn to the longest common prefix with `ids`, without the last of `ids`, whose logits are needed.
   * @param {Turn} turn
   * @param {readonly number[]} ids
   */
  async rewind(turn, ids) {
    let same = 0;
    while (same < turn.ids.length && same < ids.length - 1 && turn.ids[same] === ids[same]) same += 1;
    if (same === turn.ids.length) return;
    const cuts = !this.#hasWindows && this.caches.every(({ input: { shape } }) => shape.length === 4 && typeof shape[2] === 'string');
    if (!cuts || !this.reaches(turn.begin, same)) {
      turn.dispose();
      return;
    }
    const rewinder = await this.#rewinder;
    try {
      for (const [name, cache] of turn.caches) {
        turn.caches.set(name, await rewinder.cut(cache, same - turn.begin));
        cache.dispose();
      }
      turn.ids.length = same;
    } catch (error) {
      if (/** @type {Error} */ (error).name !== 'DeviceLost') throw error;
      turn.dispose(); // all tokens are computed again
    }
  }

  /** @param {Turn} turn @param {readonly number[]} ids @param {boolean} wanted whether logits are wanted @returns {Promise<Float32Array>} */
  async #run(turn, ids, wanted) {
    const { logits } = this.names;
    await this.trim(turn);
    /** @type {Record<string, Tensor | null>} */
    const fetches = Object.fromEntries(this.caches.map(({ output }) => [output, null]));
    const feeds = this.#feeds(turn, ids);
    if (wanted) fetches[logits] = this.#target(feeds, ids.length);
    const outputs = await this.session.run(feeds, fetches);
    for (const { input, output } of this.caches) {
      turn.caches.get(input.name)?.dispose();
      turn.caches.set(input.name, outputs[output]);
    }
    turn.ids.push(...ids);
    if (!wanted) return new Float32Array();
    const scores = outputs[logits];
    await scores.getData(true);
    return floats(scores, scores.dims[scores.dims.length - 1]);
  }

  /**
   * Allocate memory for the logits, so that they arrive with the result; null if their size is unknown.
   * @param {Record<string, Tensor>} feeds
   * @param {number} count
   */
  #target(feeds, count) {
    const { type, shape } = /** @type {ValueMetadata} */ (this.session.outputMetadata.find(({ name }) => name === this.names.logits));
    const [, , vocabulary] = shape;
    if (shape.length !== 3 || typeof vocabulary !== 'number') return null;
    const rows = typeof shape[1] === 'number' ? shape[1] : KEPT_LOGITS.some((name) => name in feeds) ? 1 : count;
    const elements = rows * vocabulary;
    return new Tensor(type, type === 'float32' ? new Float32Array(elements) : Array(elements).fill(0), [1, rows, vocabulary]);
  }

  /** @param {Turn} turn @param {readonly number[]} ids */
  #feeds(turn, ids) {
    const { names } = this;
    const past = turn.rows;
    /** @type {Record<string, Tensor>} */
    const feeds = {};
    const give = (/** @type {string} */ name, /** @type {readonly number[]} */ values, /** @type {number[]} */ dims) => {
      const input = this.inputs.get(name);
      if (!input) return;
      const data = input.type === 'int64' ? BigInt64Array.from(values, BigInt) : input.type === 'int32' ? Int32Array.from(values) : [...values];
      feeds[name] = new Tensor(input.type, data, input.shape.length ? dims : []);
    };
    give(names.ids, ids, [1, ids.length]);
    give(names.mask, Array(past + ids.length).fill(1), [1, past + ids.length]);
    give(names.positions, ids.map((_, index) => past + index), [1, ids.length]);
    for (const name of KEPT_LOGITS) give(name, [1], [1]);
    if (this.inputs.has('use_cache_branch')) {
      feeds.use_cache_branch = new Tensor('bool', [past > 0], [1]);
    }
    for (const { input } of this.caches) {
      feeds[input.name] = turn.caches.get(input.name) ?? empty(input, this.inputs.get(names.ids), this.#sizes, this.#rows[input.name]);
    }
    return feeds;
  }

  async release() {
    const rewinder = await this.#rewinder.catch(() => null);
    await Promise.all([rewinder?.release(), this.samplers.release(), this.session.release()]);
  }
}

/**
 * Return an empty cache. Dimensions without a size are 0, except the batch, which is 1, sizes of heads, which the configuration has, and
 * rows of caches that hold a window. The batch is the dimension with that name or with the name of the ids' batch, else the first one if
 * another dimension is also dynamic.
 * @param {ValueMetadata} input
 * @param {ValueMetadata | undefined} ids
 * @param {HeadSizes} sizes
 * @param {number | undefined} rows
 */
function empty({ type, shape }, ids, { heads, components }, rows) {
  const isBatch = (/** @type {string} */ dim) => /batch/i.test(dim) || (dim !== '' && dim === ids?.shape[0]);
  const open = shape.filter((dim) => typeof dim === 'string');
  const named = open.some((dim) => isBatch(dim));
  const told = shape.length === 4 && typeof shape[2] === 'string' ? [undefined, heads, rows, components] : [];
  const dims = shape.map((dim, axis) => (
    typeof dim === 'number' ? dim : told[axis] ?? Number(named ? isBatch(dim) : axis === 0 && open.length > 1)));
  const size = dims.reduce((product, dim) => product * dim, 1);
  return new Tensor(type, Array(size).fill(0), dims);
}
