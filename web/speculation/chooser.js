// @ts-check
/** Select the most likely token of logits on the GPU: an ArgMax model, replayed after each run of the decoder. */

import { drop, hold } from '../gpu/held.js';
import { prepareFirst } from '../gpu/replay.js';
import { DEPTH } from './pace.js';

/**
 * @typedef {import('../gpu/replay.js').Replay} Replay
 * @typedef {import('../worker/tensors.js').Memory} Memory
 * @typedef {import('../worker/tensors.js').Remote} Remote
 * @typedef {import('../worker/tensors.js').Tensors} Tensors
 *
 * @typedef {object} Logits
 * @property {string} name of the output
 * @property {'float32' | 'float16'} type
 * @property {number[]} dims
 * @property {'int64' | 'int32'} ids type of the decoder's input
 *
 * @typedef {object} Maker
 * @property {(options: object) => Promise<ArrayBuffer>} model of a sampler
 * @property {() => Promise<GPUDevice>} device
 * @property {(model: ArrayBuffer) => Promise<number>} create a session
 * @property {(args: import('../api/protocol.js').RunArguments) => Promise<Record<string, any>>} run
 * @property {(session: number) => {outputs: number, replays: Replay[], spares: Memory[]} | undefined} known
 * @property {(session: number) => Promise<unknown>} release
 * @property {Tensors} tensors
 */

const IDS = 'ids';

export class Chooser {
  #maker;
  #device;

  /** @param {Maker} maker @param {GPUDevice} device @param {number} session @param {Logits} logits @param {GPUBuffer} buffer for a copy of them */
  constructor(maker, device, session, logits, buffer) {
    this.#maker = maker;
    this.#device = device;
    this.logits = logits;
    this.session = session;
    this.buffer = buffer;
    /** Memory that is neither Python's nor a session's. @type {Memory} */
    const memory = { id: -1, buffer, reserved: null, tensors: new Set(), holders: [], spares: null };
    /** @type {Remote} */
    this.remote = { number: 0, type: logits.type, dims: logits.dims, memory, python: 0 };
  }

  /**
   * Create a chooser for logits of these dimensions.
   * @param {Maker} maker
   * @param {Logits} logits
   * @param {number} most maximum number of tokens on the GPU at a time
   */
  static async create(maker, logits, most) {
    const options = { greedy: true, log_probability: false, dtype: logits.type, ids: logits.ids };
    const [model, device] = await Promise.all([maker.model(options), maker.device()]);
    const nbytes = logits.dims.reduce((product, dim) => product * dim, logits.type === 'float16' ? 2 : 4);
    const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
    const buffer = hold(device, device.createBuffer({ label: 'logits', size: (nbytes + 15) & ~15, usage: STORAGE | COPY_SRC | COPY_DST }));
    const made = new Chooser(maker, device, await maker.create(model), logits, buffer);
    const value = { kind: /** @type {const} */ ('buffer'), type: logits.type, dims: logits.dims, buffer };
    const args = { session: made.session, feeds: { logits: value }, fetches: [IDS], kept: { [IDS]: null }, options: {} };
    const tokens = [];
    for (let i = 0; i < most; i++) tokens.push((await maker.run(args))[IDS]);
    for (const ids of tokens) if (ids?.kind === 'gpu') maker.tensors.dispose(ids.gpu); // their memory becomes unused memory of the session
    return made;
  }

  /** Return whether it was created for such logits. @param {Logits} logits */
  suits({ name, type, dims, ids }) {
    const own = this.logits;
    return own.name === name && own.type === type && own.ids === ids && String(own.dims) === String(dims);
  }

  /** Prepare a run, with the tensor of the token's id; null if it needs Python. */
  prepare() {
    const known = this.#maker.known(this.session);
    if (!known) return null;
    const feeds = { logits: { type: this.remote.type, dims: this.remote.dims, remote: this.remote } };
    const prepared = prepareFirst(known.replays, feeds, { fetches: [IDS], stay: [IDS] }, known, this.#maker.tensors);
    return prepared && { prepared, ids: prepared.staying[0].tensor };
  }

  async release() {
    drop(this.#device, this.buffer);
    await this.#maker.release(this.session);
  }
}

/** The chooser for the logits of a session. */
export class Choosers {
  /** The chooser, once it is ready. @type {Chooser | null} */
  current = null;
  #maker;
  #failed;
  /** @type {Promise<unknown> | null} */
  #creating = null;

  /** @param {Maker} maker @param {() => void} failed called if a chooser cannot be created */
  constructor(maker, failed) {
    this.#maker = maker;
    this.#failed = failed;
  }

  /** Create a chooser for such logits, unless one exists. @param {Logits} logits */
  expect(logits) {
    if (this.#creating || this.current?.suits(logits)) return;
    const stale = this.current;
    this.current = null;
    this.#creating = Promise.resolve(stale?.release()).then(() => Chooser.create(this.#maker, logits, DEPTH + 2)).then((made) => {
      this.current = made;
    }, this.#failed).finally(() => { this.#creating = null; });
  }

  /** Release the chooser, even while it is being created. */
  async end() {
    await this.#creating;
    const chooser = this.current;
    this.current = null;
    await chooser?.release();
  }
}
