// @ts-check
/**
 * Decoding whose token ids stay on the GPU: a decoder's logits go to a sampler, and the id that it chooses is the decoder's
 * next input. Steps are queued one after another without waiting for any; their ids come to JavaScript in batches. Caches in
 * memory with room lose the rows of tokens that are not wanted in the end; of others those before such tokens are kept.
 */

import { begin, matches } from './replay.js';
import { caught, collect, guarded, stage } from './staging.js';
import { LARGE } from './pieces.js';
import { attend } from './waiting.js';

/**
 * @typedef {import('./protocol.js').DecodeArguments} DecodeArguments
 * @typedef {import('./protocol.js').DecodeInput} DecodeInput
 * @typedef {import('./protocol.js').WireTensor} WireTensor
 * @typedef {import('./replay.js').Fed} Fed
 * @typedef {import('./replay.js').Replay} Replay
 * @typedef {import('./tensors.js').Memory} Memory
 * @typedef {import('./tensors.js').Remote} Remote
 * @typedef {import('./tensors.js').Tensors} Tensors
 * @typedef {{id: number, signal: AbortSignal}} Request
 *
 * @typedef {object} Known a session, as web/host.js has it
 * @property {number} outputs
 * @property {Replay[]} replays
 * @property {Set<Promise<unknown>>} replaying
 * @property {Memory[]} spares
 *
 * @typedef {object} Host
 * @property {GPUDevice} device
 * @property {Tensors} tensors
 * @property {(session: number) => Known | undefined} known
 * @property {(args: import('./protocol.js').RunArguments, request: Request) => Promise<Record<string, any>>} run
 */

/** Steps of a batch at most: all batches have staging buffers of one size. */
const MOST = 16;

/** Elements of what is fed for each token of the text, at first. */
const LEAST = 256;

/** @type {Record<string, {of: (values: number[]) => ArrayBuffer, bytes: number}>} */
const INTEGERS = {
  int64: { of: (values) => BigInt64Array.from(values, BigInt).buffer, bytes: 8 },
  int32: { of: (values) => Int32Array.from(values).buffer, bytes: 4 },
};

/** @param {number[]} dims */
const sizeOf = (dims) => dims.reduce((product, dim) => product * dim, 1);

class NotOnGpu extends Error {
  name = 'NotImplemented';
}

/** The loop of one text. */
export class Decoding {
  #host;
  #args;
  /** What each cache's input gets next. @type {Map<string, Remote | WireTensor>} */
  #caches = new Map();
  /** Caches without room after so many tokens, which may turn out to be the last. @type {Map<number, Map<string, Remote | WireTensor>>} */
  #before = new Map();
  /** The last token's, on the GPU or on the host. @type {Remote | WireTensor} */
  #ids;
  /** How often each token was generated, where penalties ask. @type {Remote | WireTensor | null} */
  #counts;
  /** Tokens in the caches. */
  #length;
  /** A mask of ones for more tokens than there are. */
  #ones;
  /** Steps are queued in turn. @type {Promise<unknown>} */
  #turn = Promise.resolve();
  /** Batches that have not arrived. @type {Set<Promise<unknown>>} */
  #arriving = new Set();
  /** Runs of the batch that is being queued. @type {Promise<unknown>[]} */
  #runs = [];
  /** What an output takes of a token's record, in bytes. @type {Map<string, number>} */
  #widths = new Map();
  /** What went wrong. @type {unknown} */
  #failure;
  /** Why nothing more is queued. @type {Error | undefined} */
  #ended;

  /** @param {Host} host @param {DecodeArguments} args */
  constructor(host, args) {
    this.#host = host;
    this.#args = args;
    this.#length = args.length;
    this.#counts = args.counts;
    this.#ids = { type: args.ids.type, dims: [1, 1], data: INTEGERS[args.ids.type].of([args.ids.first]) };
    this.#ones = args.mask ? INTEGERS[args.mask.type].of(Array(LEAST).fill(1)) : new ArrayBuffer(0);
    for (const { input, given } of args.caches) this.#caches.set(input, this.#own(given));
  }

  /** A value of the caller's: of a tensor on the GPU another, so that the caller may dispose of its own. @param {any} given */
  #own(given) {
    if (given.kind !== 'gpu') return given;
    const remote = this.#host.tensors.get(given.gpu);
    if (!remote) throw new Error('a cache on the GPU is disposed already');
    return this.#host.tensors.made(remote.type, remote.dims, remote.memory);
  }

  /**
   * Queue steps behind those that are queued; answers when their ids have arrived.
   * @param {import('./protocol.js').DecodeStepsArguments} args
   * @param {Request} request
   * @returns {Promise<import('./protocol.js').DecodedTokens>}
   */
  async steps({ count, draws, confirmed }, request) {
    const queued = this.#turn.then(() => this.#batch(Math.min(count, MOST), draws, confirmed, request));
    this.#turn = queued.catch(() => {});
    const { arrival, grows } = await queued;
    const bytes = await arrival;
    return { ...this.#read(bytes, Math.min(count, MOST)), grows };
  }

  /**
   * @param {number} count
   * @param {number[]} draws
   * @param {number} confirmed
   * @param {Request} request
   */
  async #batch(count, draws, confirmed, request) {
    if (this.#failure ?? this.#ended) throw this.#failure ?? this.#ended;
    for (const [length, caches] of this.#before) if (length < confirmed) this.#drop(length, caches);
    const { device } = this.#host;
    const runs = /** @type {Promise<unknown>[]} */ ([]);
    this.#runs = runs;
    /** @type {import('./staging.js').Piece | undefined} */
    let piece;
    try {
      for (let step = 0; step < count; step++) {
        const record = await this.#step(draws[step], request);
        piece ??= this.#piece(record);
        const { staging } = piece;
        runs.push(caught(guarded(device, () => this.#copy(record, staging, step))));
        for (const { tensor } of record) if (tensor !== this.#ids) this.#host.tensors.dispose(tensor.number);
        await null; // the browser sends what is queued when microtasks run
      }
    } catch (error) {
      this.#failure = error;
      piece?.staging.destroy();
      await Promise.allSettled(runs);
      throw error;
    }
    const arrival = this.#arrival(/** @type {import('./staging.js').Piece} */ (piece), runs);
    this.#arriving.add(arrival);
    arrival.catch(() => {}).finally(() => this.#arriving.delete(arrival));
    return { arrival, grows: [...this.#caches.values()].every((cache) => 'memory' in cache && cache.memory.room) };
  }

  /** Memory that the records of a batch are copied to. @param {{name: string, tensor: Remote}[]} record */
  #piece(record) {
    for (const { name, tensor } of record) this.#widths.set(name, sizeOf(tensor.dims) * (tensor.type === 'int64' ? 8 : 4));
    const { buffer } = record[0].tensor.memory;
    return stage(this.#host.device, [{ buffer, offset: 0, nbytes: MOST * this.#stride }])[0];
  }

  /** Bytes of a token's record. */
  get #stride() {
    return [...this.#widths.values()].reduce((sum, width) => sum + width, 0);
  }

  /** @param {{name: string, tensor: Remote}[]} record @param {GPUBuffer} staging @param {number} step */
  #copy(record, staging, step) {
    const { device } = this.#host;
    const encoder = device.createCommandEncoder();
    let at = step * this.#stride;
    for (const { name, tensor } of record) {
      const width = /** @type {number} */ (this.#widths.get(name));
      encoder.copyBufferToBuffer(tensor.memory.buffer, 0, staging, at, width);
      at += width;
    }
    device.queue.submit([encoder.finish()]);
  }

  /** @param {import('./staging.js').Piece} piece @param {Promise<unknown>[]} runs */
  async #arrival(piece, runs) {
    const bytes = new Uint8Array(piece.length);
    const { device } = this.#host;
    try {
      await Promise.all([attend(device, collect(device, piece, [bytes]), { recording: this }), ...runs]);
    } catch (error) {
      this.#failure = error;
      await Promise.allSettled(runs);
      throw error;
    }
    return bytes.buffer;
  }

  /** What the records of `count` steps say. @param {ArrayBuffer} bytes @param {number} count */
  #read(bytes, count) {
    const [stride, view] = [this.#stride, new DataView(bytes)];
    /** @type {{ids: number[], logProbabilities: number[], top: {ids: number[], logProbabilities: number[]}[]}} */
    const found = { ids: [], logProbabilities: [], top: [] };
    for (let step = 0; step < count; step++) {
      let at = step * stride;
      /** @type {Record<string, number[]>} */
      const record = {};
      for (const [name, width] of this.#widths) {
        const wide = name === 'top_ids' || (name === 'ids' && this.#args.ids.type === 'int64');
        record[name] = Array.from({ length: width / (wide ? 8 : 4) }, (_, i) => {
          if (wide) return Number(view.getBigInt64(at + 8 * i, true));
          return name === 'ids' ? view.getInt32(at + 4 * i, true) : view.getFloat32(at + 4 * i, true);
        });
        at += width;
      }
      found.ids.push(record.ids[0]);
      found.logProbabilities.push(record.log_probability[0]);
      if (record.top_ids) found.top.push({ ids: record.top_ids, logProbabilities: record.top_log_probabilities });
    }
    return found;
  }

  /** Queue one token; what the sampler says of it. @param {number | undefined} draw @param {Request} request */
  async #step(draw, request) {
    const { decoder, sampler, logits, caches, settings } = this.#args;
    const { tensors } = this.#host;
    const made = await this.#run(decoder, this.#feeds(), [logits, ...caches.map(({ output }) => output)], request);
    const spent = this.#ids;
    this.#advance(made);
    if ('memory' in spent) tensors.dispose(spent.number);
    const scores = /** @type {Remote} */ (made.get(logits));
    /** @type {Record<string, any>} */
    const given = { ...settings, logits: scores };
    if (draw !== undefined) given.uniform = { type: 'float32', dims: [1], data: Float32Array.of(draw).buffer };
    if (this.#counts) given.counts = this.#counts;
    const chosen = await this.#run(sampler, given, this.#args.chosen, request)
      .finally(() => tensors.dispose(scores.number));
    if (this.#counts) {
      if ('memory' in this.#counts) tensors.dispose(this.#counts.number);
      this.#counts = /** @type {Remote} */ (chosen.get('counts_out'));
    }
    this.#ids = /** @type {Remote} */ (chosen.get('ids'));
    return this.#args.chosen.filter((name) => name !== 'counts_out')
      .map((name) => ({ name, tensor: /** @type {Remote} */ (chosen.get(name)) }));
  }

  /** The decoder's next inputs. @returns {Record<string, Remote | WireTensor>} */
  #feeds() {
    const { ids, mask, positions, branch, fixed } = this.#args;
    const length = this.#length + 1;
    /** @type {Record<string, Remote | WireTensor>} */
    const feeds = { ...fixed, [ids.name]: this.#ids };
    if (mask) {
      const { of, bytes } = INTEGERS[mask.type];
      if (this.#ones.byteLength < length * bytes) this.#ones = of(Array(2 * length).fill(1));
      feeds[mask.name] = { type: mask.type, dims: [1, length], data: this.#ones };
    }
    if (positions) {
      feeds[positions.name] = { type: positions.type, dims: [1, 1], data: INTEGERS[positions.type].of([length - 1]) };
    }
    if (branch) feeds[branch] = { type: 'bool', dims: [1], data: Uint8Array.of(Number(length > 1)).buffer };
    for (const [name, cache] of this.#caches) feeds[name] = cache;
    return feeds;
  }

  /** Caches are those with one token more. @param {Map<string, Remote>} made */
  #advance(made) {
    /** @type {Map<string, Remote | WireTensor>} */
    const kept = new Map();
    for (const { input, output } of this.#args.caches) {
      const [old, now] = [/** @type {Remote | WireTensor} */ (this.#caches.get(input)), /** @type {Remote} */ (made.get(output))];
      if (!now.memory.room) kept.set(input, old);
      else if ('memory' in old) this.#host.tensors.dispose(old.number);
      this.#caches.set(input, now);
    }
    if (kept.size) this.#before.set(this.#length, kept);
    this.#length += 1;
  }

  /** Give caches of an earlier token back. @param {number} length @param {Map<string, Remote | WireTensor>} caches */
  #drop(length, caches) {
    for (const cache of caches.values()) if ('memory' in cache) this.#host.tensors.dispose(cache.number);
    this.#before.delete(length);
  }

  /**
   * Queue a run whose outputs stay on the GPU, through Python where there has been none like it.
   * @param {number} session
   * @param {Record<string, Remote | WireTensor>} feeds
   * @param {string[]} outputs
   * @param {Request} request
   * @returns {Promise<Map<string, Remote>>}
   */
  async #run(session, feeds, outputs, request) {
    const known = this.#host.known(session);
    if (!known) throw new Error('the session is released');
    const queued = this.#queued(known, feeds, outputs);
    if (queued) return queued;
    const { tensors } = this.#host;
    const kept = Object.fromEntries(outputs.map((name) => [name, null]));
    const wires = Object.fromEntries(Object.entries(feeds).map(([name, value]) => [name, toWire(value)]));
    const made = await this.#host.run({ session, feeds: wires, fetches: outputs, kept, options: {} }, request);
    const found = new Map(outputs.map((name) => [name, made[name]?.kind === 'gpu' ? tensors.get(made[name].gpu) : undefined]));
    if ([...found.values()].every((remote) => remote)) return /** @type {Map<string, Remote>} */ (found);
    for (const remote of found.values()) if (remote) tensors.dispose(remote.number);
    throw new NotOnGpu(`outputs of the decoder or the sampler are not on the GPU: ${outputs.filter((name) => !found.get(name))}`);
  }

  /**
   * A run without Python; null where there has been none like it.
   * @param {Known} known
   * @param {Record<string, Remote | WireTensor>} feeds
   * @param {string[]} outputs
   * @returns {Promise<Map<string, Remote>> | Map<string, Remote> | null}
   */
  #queued({ replays, replaying, outputs: count, spares }, feeds, outputs) {
    const given = Object.fromEntries(Object.entries(feeds).map(([name, value]) => (
      [name, /** @type {Fed} */ ('memory' in value ? { type: value.type, dims: value.dims, remote: value } : value)])));
    for (const replay of replays) {
      const sizes = matches(replay, given, outputs, count, outputs);
      const begun = sizes && begin(replay, given, sizes, this.#host.tensors, spares);
      if (!begun) continue;
      const { running, staying } = begun;
      const run = running.catch((error) => {
        replay.live = false;
        throw error;
      }).finally(() => replaying.delete(run));
      replaying.add(run);
      run.catch(() => {}); // who waits for the batch hears it
      this.#runs.push(run);
      const found = new Map(staying.map(({ name, tensor }) => [name, tensor]));
      const large = Object.values(given).some(({ remote, dims }) => !remote && 8 * sizeOf(dims) >= LARGE);
      return large ? run.then(() => found) : found; // large tensors go up in their own time
    }
    return null;
  }

  /**
   * End the loop: its caches after `kept` tokens, by the names of inputs; nothing stays where that is null.
   * @param {number | null} kept
   * @returns {Promise<Record<string, any>>}
   */
  async end(kept) {
    this.#ended ??= new Error('decoding has ended'); // batches that have not begun do not
    await this.#turn;
    await Promise.allSettled(this.#arriving);
    const wanted = kept !== null && !this.#failure;
    const found = wanted ? this.#cut(kept) : {};
    const { tensors } = this.#host;
    for (const value of [...this.#caches.values(), this.#ids, this.#counts]) if (value && 'memory' in value) tensors.dispose(value.number);
    for (const [length, caches] of this.#before) this.#drop(length, caches);
    this.#caches.clear();
    return found;
  }

  /** Tensors of the caches' first `length` tokens. @param {number} length */
  #cut(length) {
    const { tensors } = this.#host;
    /** @type {Record<string, any>} */
    const found = {};
    for (const [name, cache] of this.#caches) {
      if (!('memory' in cache)) return {};
      const { memory } = cache;
      /** @type {Remote | WireTensor | undefined} */
      let source = cache;
      let { dims } = cache;
      if (length < this.#length && memory.room) {
        const { axis } = memory.room;
        dims = dims.map((dim, i) => (i === axis ? dim - (this.#length - length) : dim));
      } else if (length < this.#length) {
        source = this.#before.get(length)?.get(name);
        if (!source || !('memory' in source)) return {};
        ({ dims } = source);
      }
      const made = tensors.made(source.type, dims, source.memory);
      found[name] = { kind: 'gpu', type: made.type, dims, gpu: made.number, buffer: source.memory.room ? undefined : source.memory.buffer };
    }
    return found;
  }
}

/** @param {Remote | WireTensor} value @returns {any} */
function toWire(value) {
  if ('memory' in value) return { kind: 'gpu', type: value.type, dims: value.dims, gpu: value.number };
  const { type, dims, data } = value;
  const nbytes = INTEGERS[type] ? sizeOf(dims) * INTEGERS[type].bytes : null;
  return { type, dims, data: nbytes !== null && data instanceof ArrayBuffer && data.byteLength > nbytes ? data.slice(0, nbytes) : data };
}
