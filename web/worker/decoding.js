// @ts-check
/**
 * Decode text on the GPU: a decoder's logits are the input of a sampler, and the selected token id is the decoder's next input. Steps are
 * queued without waiting for earlier ones, one submit each; ids are read back in batches. text_caches.js manages the caches.
 */

import { TextCaches } from './text_caches.js';
import { enqueue } from '../gpu/player.js';
import { drop, hold } from '../gpu/held.js';
import { MOST, Records } from './token_records.js';
import { collect } from '../gpu/readback.js';
import { prepareFirst } from '../gpu/replay.js';
import { caught, waits } from '../gpu/staging.js';
import { attend } from '../gpu/waiting.js';

/**
 * @typedef {import('../api/protocol.js').DecodeArguments} DecodeArguments
 * @typedef {import('../api/protocol.js').WireTensor} WireTensor
 * @typedef {import('../gpu/replay.js').Fed} Fed
 * @typedef {import('../gpu/replay.js').Prepared} Prepared
 * @typedef {import('../gpu/replay.js').Replay} Replay
 * @typedef {import('../gpu/readback.js').Piece} Piece
 * @typedef {import('./tensors.js').Remote} Remote
 * @typedef {import('./tensors.js').Tensors} Tensors
 * @typedef {{id: number, signal: AbortSignal}} Request
 *
 * @typedef {Pick<import('./runs.js').Session, 'outputs' | 'replays' | 'replaying' | 'spares'>} Known
 *
 * @typedef {object} Host
 * @property {GPUDevice} device
 * @property {Tensors} tensors
 * @property {(session: number) => Known | undefined} known
 * @property {(session: number, feeds: Record<string, Fed>, outputs: string[], request: Request) => Promise<Record<string, any>>} run
 *
 * @typedef {object} Batch a batch of steps that is being queued
 * @property {Piece | null} piece memory for the records of its tokens
 * @property {Promise<unknown>[]} runs results of error scopes
 * @property {Request} request
 */

/** Initial capacity, in elements, of inputs that grow with each token. */
const LEAST = 256;

/** @type {Record<string, {of: (values: number[]) => ArrayBuffer, bytes: number}>} */
const INTEGERS = {
  int64: { of: (values) => BigInt64Array.from(values, BigInt).buffer, bytes: 8 },
  int32: { of: (values) => Int32Array.from(values).buffer, bytes: 4 },
};

/** Numbers of memory that Python does not own are negative. */
let lastUploaded = 0;

/** @param {number[]} dims */
const sizeOf = (dims) => dims.reduce((product, dim) => product * dim, 1);

class NotOnGpu extends Error {
  name = 'NotImplemented';
}

/** The decoding loop of one text. */
class Decoding {
  #host;
  #args;
  #caches;
  /** The last token's id. @type {Remote} */
  #ids;
  /** Buffer of the first token's id. @type {GPUBuffer} */
  #first;
  /** Number of times that each token was generated; for penalties. @type {Remote | WireTensor | null} */
  #counts;
  /** A mask of ones with capacity for further tokens. */
  #ones;
  /** Serializes the steps. @type {Promise<unknown>} */
  #turn = Promise.resolve();
  /** Batches that have not been read back. @type {Set<Promise<unknown>>} */
  #arriving = new Set();
  /** The last replay of each session. @type {Map<number, Replay>} */
  #last = new Map();
  #records;
  /** The error of a step, which ends the loop. @type {unknown} */
  #failure;
  /** The error that later steps reject with; undefined while the loop runs. @type {Error | undefined} */
  #ended;

  /** @param {Host} host @param {DecodeArguments} args */
  constructor(host, args) {
    this.#host = host;
    this.#args = args;
    this.#records = new Records(host.device);
    this.#caches = new TextCaches(host.tensors, args.caches, args.length);
    this.#counts = args.counts;
    this.#ids = uploaded(host.device, args.ids.type, INTEGERS[args.ids.type].of([args.ids.first]));
    this.#first = this.#ids.memory.buffer;
    this.#ones = args.mask ? INTEGERS[args.mask.type].of(Array(LEAST).fill(1)) : new ArrayBuffer(0);
  }

  /**
   * Queue steps; resolves with their ids.
   * @param {import('../api/protocol.js').DecodeStepsArguments} args
   * @param {Request} request
   * @returns {Promise<import('../api/protocol.js').DecodedTokens>}
   */
  async steps({ count, draws, confirmed }, request) {
    const queued = this.#turn.then(() => this.#batch(Math.min(count, MOST), draws, confirmed, request));
    this.#turn = queued.catch(() => {});
    const { arrival, grows } = await queued;
    const bytes = await arrival;
    return { ...this.#records.read(bytes, Math.min(count, MOST)), grows };
  }

  /**
   * @param {number} count
   * @param {number[]} draws
   * @param {number} confirmed
   * @param {Request} request
   */
  async #batch(count, draws, confirmed, request) {
    if (this.#failure ?? this.#ended) throw this.#failure ?? this.#ended;
    this.#caches.confirm(confirmed);
    /** @type {Batch} */
    const batch = { piece: null, runs: [], request };
    try {
      for (let step = 0; step < count; step++) {
        await this.#step(step, draws[step], batch); // the browser submits queued work when microtasks run
      }
    } catch (error) {
      if (/** @type {Error} */ (error).name === 'NoPlan') this.#ended = /** @type {Error} */ (error);
      else this.#failure = error;
      batch.piece?.staging.destroy();
      await Promise.allSettled(batch.runs);
      throw error;
    }
    const arrival = this.#arrival(/** @type {Piece} */ (batch.piece), batch.runs);
    this.#arriving.add(arrival);
    arrival.catch(() => {}).finally(() => this.#arriving.delete(arrival));
    return { arrival, grows: this.#caches.grow };
  }

  /**
   * Queue recordings, then copies.
   * @param {{known: Known, prepared: Prepared}[]} parts
   * @param {{from: GPUBuffer, to: GPUBuffer, at: number, nbytes: number}[]} copies
   * @param {Batch} batch
   */
  #send(parts, copies, { runs }) {
    const recordings = parts.map(({ prepared }) => prepared);
    const run = caught(enqueue(this.#host.device, recordings, copies)).catch((error) => {
      for (const { replay } of recordings) replay.live = false; // the next run uses Python, which reports the cause
      throw error;
    }).finally(() => {
      for (const { known } of parts) known.replaying.delete(run);
    });
    for (const { known } of parts) known.replaying.add(run);
    run.catch(() => {}); // `#arrival` awaits it and reports the error
    runs.push(run);
  }

  /** @param {Piece} piece @param {Promise<unknown>[]} runs */
  async #arrival(piece, runs) {
    const bytes = new Uint8Array(piece.length);
    const { device } = this.#host;
    try {
      await Promise.all([attend(device, collect(device, piece, [bytes])), ...runs]);
    } catch (error) {
      this.#failure = error;
      if (!piece.done) piece.staging.destroy();
      await Promise.allSettled(runs);
      throw error;
    }
    return bytes.buffer;
  }

  /**
   * Queue one token. Nothing is awaited between preparing a run and queueing it, so the memory that it reads is free for the next run.
   * @param {number} step index in the batch
   * @param {number | undefined} draw
   * @param {Batch} batch
   */
  async #step(step, draw, batch) {
    const { decoder, sampler, logits, caches, settings } = this.#args;
    const { tensors } = this.#host;
    /** @type {{known: Known, prepared: Prepared}[]} */
    const parts = [];
    const computed = this.#run(decoder, this.#feeds(), [logits, ...caches.map(({ output }) => output)], parts, batch);
    const made = computed instanceof Promise ? await computed : computed;
    const spent = this.#ids;
    this.#caches.advance(made);
    tensors.dispose(spent.number);
    const scores = /** @type {Remote} */ (made.get(logits));
    /** @type {Record<string, any>} */
    const given = { ...settings, logits: scores };
    if (draw !== undefined) given.uniform = { type: 'float32', dims: [1], data: Float32Array.of(draw).buffer };
    if (this.#counts) given.counts = this.#counts;
    let chosen;
    try {
      const drawn = this.#run(sampler, given, this.#args.chosen, parts, batch);
      chosen = drawn instanceof Promise ? await drawn : drawn;
    } finally {
      tensors.dispose(scores.number);
    }
    if (this.#counts) {
      if ('memory' in this.#counts) tensors.dispose(this.#counts.number);
      this.#counts = /** @type {Remote} */ (chosen.get('counts_out'));
    }
    this.#ids = /** @type {Remote} */ (chosen.get('ids'));
    const record = this.#args.chosen.filter((name) => name !== 'counts_out')
      .map((name) => ({ name, tensor: /** @type {Remote} */ (chosen.get(name)) }));
    try {
      batch.piece ??= this.#records.stage(record);
      this.#send(parts, this.#records.copies(record, batch.piece.staging, step), batch);
    } finally {
      for (const { tensor } of record) if (tensor !== this.#ids) tensors.dispose(tensor.number);
    }
  }

  /** Return the decoder's next inputs. @returns {Record<string, Remote | WireTensor>} */
  #feeds() {
    const { ids, mask, positions, branch, fixed } = this.#args;
    const length = this.#caches.length + 1;
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
    return Object.assign(feeds, this.#caches.next);
  }

  /**
   * Prepare a run whose outputs stay on the GPU and add it to `parts`; without a matching recording, send `parts` and run through the host.
   * @param {number} session
   * @param {Record<string, Remote | WireTensor>} feeds
   * @param {string[]} outputs
   * @param {{known: Known, prepared: Prepared}[]} parts
   * @param {Batch} batch
   * @returns {Map<string, Remote> | Promise<Map<string, Remote>>}
   */
  #run(session, feeds, outputs, parts, batch) {
    const known = this.#host.known(session);
    if (!known) throw new Error('the session is released');
    const given = Object.fromEntries(Object.entries(feeds).map(([name, value]) => [name, fedOf(value)]));
    const prepared = this.#prepared(session, known, given, outputs);
    if (prepared) {
      parts.push({ known, prepared });
      return new Map(prepared.staying.map(({ name, tensor }) => [name, tensor]));
    }
    if (parts.length) this.#send(parts.splice(0), [], batch);
    return this.#asked(session, given, outputs, batch.request);
  }

  /** @param {number} session @param {Record<string, Fed>} feeds @param {string[]} outputs @param {Request} request */
  async #asked(session, feeds, outputs, request) {
    const { tensors } = this.#host;
    const given = Object.fromEntries(Object.entries(feeds).map(([name, fed]) => [name, trimmed(fed)]));
    const made = await this.#host.run(session, given, outputs, request);
    const found = new Map(outputs.map((name) => [name, made[name]?.kind === 'gpu' ? tensors.get(made[name].gpu) : undefined]));
    if ([...found.values()].every((remote) => remote)) return /** @type {Map<string, Remote>} */ (found);
    for (const remote of found.values()) if (remote) tensors.dispose(remote.number);
    throw new NotOnGpu(`outputs of the decoder or the sampler are not on the GPU: ${outputs.filter((name) => !found.get(name))}`);
  }

  /**
   * Prepare a run without Python; null if no recording matches, or uploads would have to wait.
   * @param {number} session
   * @param {Known} known
   * @param {Record<string, Fed>} feeds
   * @param {string[]} outputs
   * @returns {Prepared | null}
   */
  #prepared(session, known, feeds, outputs) {
    const { device, tensors } = this.#host;
    const last = this.#last.get(session);
    const replays = last && known.replays.includes(last) ? [last, ...known.replays] : known.replays;
    const prepared = prepareFirst(replays, feeds, { fetches: outputs, stay: outputs }, known, tensors);
    if (prepared && waits(device, prepared.writes)) {
      for (const { tensor } of prepared.staying) tensors.dispose(tensor.number);
      return null;
    }
    if (prepared) this.#last.set(session, prepared.replay);
    return prepared;
  }

  /**
   * End the loop; return its caches after `kept` tokens, by input name. If `kept` is null, all are freed.
   * @param {number | null} kept
   * @returns {Promise<Record<string, any>>}
   */
  async end(kept) {
    this.#ended ??= new Error('decoding has ended'); // rejects batches that have not started
    await this.#turn;
    await Promise.allSettled(this.#arriving);
    const wanted = kept !== null && !this.#failure;
    const found = wanted ? this.#caches.cut(kept) : {};
    const { tensors } = this.#host;
    drop(this.#host.device, this.#first);
    for (const value of [this.#ids, this.#counts]) if (value && 'memory' in value) tensors.dispose(value.number);
    this.#caches.dispose();
    return found;
  }
}

/** Decoding loops, by number. */
export class Decodings {
  /** @type {Map<number, Decoding>} */
  #loops = new Map();
  #last = 0;
  #sign;

  /** @param {1 | -1} sign of the loops' numbers */
  constructor(sign) {
    this.#sign = sign;
  }

  /** Start a loop; return its number. @param {Host} host @param {DecodeArguments} args */
  begin(host, args) {
    this.#last += this.#sign;
    this.#loops.set(this.#last, new Decoding(host, args));
    return this.#last;
  }

  /** Queue steps of a loop. @param {import('../api/protocol.js').DecodeStepsArguments} args @param {Request} request */
  async steps(args, request) {
    const loop = this.#loops.get(args.decoding);
    if (!loop) throw new Error('decoding has ended');
    return loop.steps(args, request);
  }

  /** End a loop; return its caches, by input name. @param {import('../api/protocol.js').DecodeEndArguments} args */
  async end({ decoding, kept }) {
    const loop = this.#loops.get(decoding);
    this.#loops.delete(decoding);
    return loop ? loop.end(kept) : {};
  }
}

/**
 * Return a token's id on the GPU for the first step: a tensor with number 0, whose buffer the caller owns.
 * @param {GPUDevice} device
 * @param {string} type
 * @param {ArrayBuffer} data
 * @returns {Remote}
 */
function uploaded(device, type, data) {
  const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
  const buffer = hold(device, device.createBuffer({ label: 'token', size: 256, usage: STORAGE | COPY_SRC | COPY_DST }));
  device.queue.writeBuffer(buffer, 0, data);
  lastUploaded += 1;
  const memory = { id: -lastUploaded, buffer, reserved: null, tensors: new Set(), holders: [], spares: null };
  return { number: 0, type, dims: [1, 1], memory, python: 0 };
}

/** @param {Remote | WireTensor} value @returns {Fed} */
const fedOf = (value) => /** @type {Fed} */ ('memory' in value ? { type: value.type, dims: value.dims, remote: value } : value);

/** Return the feed without unused elements of its memory, such as those of a mask. @param {Fed} fed @returns {Fed} */
function trimmed({ type, dims, data, remote }) {
  const nbytes = INTEGERS[type] ? sizeOf(dims) * INTEGERS[type].bytes : Infinity;
  return { type, dims, remote, data: data instanceof ArrayBuffer && data.byteLength > nbytes ? data.slice(0, nbytes) : data };
}
