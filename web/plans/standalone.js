// @ts-check
/**
 * The client of a session over plans: runs are replayed in the page's thread. Python is started for what the plans do not have, such as
 * another shape or `explain()`; later runs that have a plan are replayed again, unless their inputs are on Python's GPU.
 */

import { unlessAborted } from '../api/aborting.js';
import { client, started } from '../api/client.js';
import { inWorker } from '../api/port.js';
import { matches, otherValues } from '../gpu/matching.js';
import { watchOf } from '../gpu/long_runs.js';
import { run } from '../gpu/replay.js';
import { wasteOf } from '../gpu/sizes.js';
import { feedsOf } from '../worker/tensors.js';
import { hold, sessions } from './locations.js';

/**
 * @typedef {import('./program.js').Entry} Entry
 * @typedef {import('./wasm_program.js').WasmProgram} WasmProgram
 * @typedef {import('./program.js').Program} Program
 * @typedef {import('../api/protocol.js').RunArguments} RunArguments
 * @typedef {import('../gpu/replay.js').Fed} Fed
 * @typedef {import('../gpu/replay.js').Replay} Replay
 * @typedef {import('./bound_caches.js').BoundCaches} BoundCaches
 */

let lastHandle = 0;

/** Serves one session in place of `Client`. */
export class StandaloneClient {
  /** Whether it answers decoding requests. */
  decodes = true;
  /** Tensors are not sent in pieces: they stay in this thread. */
  streams = false;
  /** Whether a text has lacked a plan: further texts begin in Python. */
  lacks = false;
  /** Replays that have run. @type {Replay[]} */
  #replays = [];
  #program;
  #create;
  #boundCaches;
  /** @type {Promise<{owner: ReturnType<typeof client>, handle: number}> | undefined} */
  #python;
  /** @type {Set<Promise<unknown>>} */
  #running = new Set();

  /**
   * @param {Program | WasmProgram} program
   * @param {import('../api/protocol.js').CreateArguments} create the request for Python
   * @param {BoundCaches | null} boundCaches for plans that leave tensors on the GPU
   * @param {boolean} compiled whether the plans were compiled ahead of time: the page may have no Python
   */
  constructor(program, create, boundCaches, compiled) {
    this.#program = program;
    this.#create = create;
    this.#boundCaches = boundCaches;
    this.compiled = compiled;
    lastHandle -= 1;
    this.handle = lastHandle;
    sessions.set(this.handle, this);
  }

  /** Whether GPUBuffers can go to Python, in the page's thread. */
  get sharesBuffers() {
    return started()?.sharesBuffers ?? !inWorker();
  }

  /** The owner of Python's tensors. @returns {object} */
  get holder() {
    return started() ?? this;
  }

  /** The session in Python. @param {string} why */
  start(why) {
    if (!this.#python) {
      console.info(`pyruntime: ${why}: the session goes on with Python`);
      this.#python = this.#goOn().catch((error) => {
        this.#python = undefined;
        const made = new Error(`${why}: the session needs Python for that. ${error.message}`, { cause: error });
        throw Object.assign(made, { name: error.name, traceback: error.traceback });
      });
      this.#python.catch(() => {});
    }
    return this.#python;
  }

  /** Create the session in Python. */
  async #goOn() {
    const owner = client();
    await owner.ready;
    const { handle } = await owner.call('create', this.#create);
    return { owner, handle };
  }

  /**
   * @param {string} method
   * @param {any} args
   * @param {Transferable[]} [transfer]
   * @param {import('../api/client.js').Listening} [listening]
   */
  async call(method, args, transfer = [], listening = {}) {
    listening.signal?.throwIfAborted();
    if (method === 'release') return this.#release();
    if (method === 'run') {
      const work = this.#run(args, transfer, listening).finally(hold(args));
      return this.#track(unlessAborted(work, listening.signal, listening.undo));
    }
    if (method === 'cachePlan' && !this.#python) return null; // all its plans come from the cache
    if (method === 'call' && args.function === 'summary' && !this.#python) return this.#program.summary();
    if (method.startsWith('decode')) return (await import('./decoding.js')).ask(this, method, args, transfer, listening);
    const what = method === 'call' ? `${args.function}()` : method;
    const { owner, handle } = await this.start(`${what} was asked for`);
    const changed = method === 'call' ? { ...args, arguments: [handle, ...args.arguments.slice(1)] } : { ...args, session: handle };
    return owner.call(method, changed, transfer, listening);
  }

  /** This session for decoding loops; null where no tensor of it stays on the GPU. @returns {import('./decoding.js').Here | null} */
  get here() {
    const boundCaches = this.#boundCaches;
    const known = boundCaches && { outputs: this.#outputs.length, replays: this.#replays, replaying: this.#running, spares: boundCaches.spares };
    return known && { boundCaches, known, run: (feeds, outputs) => this.#runHere(feeds, outputs) };
  }

  /** @param {Record<string, Fed>} feeds @param {string[]} outputs */
  async #runHere(feeds, outputs) {
    const kept = Object.fromEntries(outputs.map((name) => [name, null]));
    const args = { session: this.handle, feeds: /** @type {any} */ (feeds), fetches: outputs, kept, options: {} };
    const found = this.#found(args);
    if (!found) {
      const { NoPlan } = await import('./decoding.js');
      throw new NoPlan('no plan runs these inputs and outputs');
    }
    const running = this.#replayed(found.entry, found.given, args);
    running.catch(() => { found.entry.seen.live = false; });
    return this.#track(running);
  }

  /** Note a run in progress: a release waits for its end. @template T @param {Promise<T>} running @returns {Promise<T>} */
  #track(running) {
    this.#running.add(running);
    return running.finally(() => this.#running.delete(running));
  }

  /**
   * Run by a plan, or in Python.
   * @param {RunArguments} args
   * @param {Transferable[]} transfer
   * @param {import('../api/client.js').Listening} listening
   */
  async #run(args, transfer, listening) {
    const { feeds, fetches } = args;
    const found = this.#found(args);
    let why;
    if (found) {
      try {
        const outputs = await this.#replayed(found.entry, found.given, args, listening);
        return fetches ? Object.fromEntries(fetches.map((/** @type {string} */ name) => [name, outputs[name]])) : outputs;
      } catch (error) {
        if (listening.signal?.aborted) throw error;
        found.entry.seen.live = false;
        why = `the plan failed (${/** @type {Error} */ (error).message})`;
      }
    } else {
      const replays = this.#program.entries.map(({ seen }) => /** @type {Replay} */ (seen));
      why = otherValues(replays, /** @type {Record<string, any>} */ (feeds)) || 'no plan runs these inputs and outputs';
    }
    const { owner, handle } = await this.start(why);
    return owner.call('run', { ...args, session: handle }, transfer, listening);
  }

  /**
   * Run the plan of `entry`.
   * @param {Entry} entry
   * @param {Record<string, Fed>} given
   * @param {RunArguments} args
   * @param {import('../api/client.js').Listening} [listening]
   * @returns {Promise<Record<string, any>>}
   */
  async #replayed(entry, given, args, { signal, onProgress } = {}) {
    if ('run' in this.#program) return this.#program.run(entry, given);
    const watch = watchOf({ signal, report: onProgress });
    const made = this.#program.replay(entry);
    made.then((replay) => { if (!this.#replays.includes(replay)) this.#replays.push(replay); }, () => {});
    const sizesOf = (/** @type {Replay} */ replay, /** @type {Record<string, Fed>} */ feeds) => this.#sizes(entry, replay, feeds, args);
    if (this.#boundCaches) return this.#boundCaches.run(made, given, sizesOf, watch);
    const replay = await made;
    const sizes = sizesOf(replay, given);
    if (!sizes) throw new Error('the session was released');
    return /** @type {Promise<Record<string, any>>} */ (run(replay, given, sizes, null, [], watch));
  }

  /**
   * The dynamic dimensions of a run; null where the plan of `entry` does not fit.
   * @param {Entry} entry
   * @param {Replay} replay
   * @param {Record<string, Fed>} feeds
   * @param {RunArguments} args
   */
  #sizes(entry, replay, feeds, { fetches, kept }) {
    const { downloads, outputs, kept: left } = entry.seen;
    const names = this.#outputs;
    const wanted = downloads.length + outputs.length + left.length === names.length ? null : fetches;
    return matches(replay, feeds, wanted, names.length, Object.keys(kept), this.#boundCaches?.fitting);
  }

  get #outputs() {
    return this.#program.plan.header.outputs.map(({ name }) => name);
  }

  /**
   * The plan that fits a run best; null where none fits.
   * @param {RunArguments} args
   */
  #found(args) {
    const { feeds, fetches, kept, options } = args;
    const isOther = Object.keys(options).length || Object.values(kept).some((target) => target)
      || Object.values(feeds).some((value) => Array.isArray(/** @type {any} */ (value)?.data)); // strings
    const given = isOther ? null : feedsOf(feeds, this.#boundCaches?.tensors);
    if (!given || fetches?.some((name) => !this.#outputs.includes(name))) return null;
    /** @type {{entry: Entry, given: Record<string, Fed>, waste: number} | null} */
    let best = null;
    for (const entry of this.#program.entries) {
      const replay = /** @type {Replay} */ (entry.seen);
      const sizes = this.#sizes(entry, replay, given, args);
      const waste = sizes && replay.sizes ? wasteOf(replay.sizes, sizes) : 0;
      if (sizes && (!best || waste < best.waste)) best = { entry, given, waste };
    }
    return best;
  }

  /** A tensor of Python's. @param {number} number */
  async download(number) {
    return (await this.start('a tensor on the GPU was asked for')).owner.download(number);
  }

  /** @param {number} number */
  materialize(number) {
    return started()?.materialize(number);
  }

  /** @param {number} number */
  dispose(number) {
    this.#python?.then(({ owner }) => owner.dispose(number), () => {});
  }

  /** Free everything, after the last run has ended or was aborted; this does not wait for runs, as one may hang. */
  async #release() {
    sessions.delete(this.handle);
    if (this.#running.size) Promise.allSettled(this.#running).then(() => this.#free());
    else this.#free();
    const python = await this.#python?.catch(() => undefined);
    if (python) await python.owner.call('release', { session: python.handle });
  }

  #free() {
    this.#program.release();
    for (const replay of this.#replays) replay.live = false;
    this.#boundCaches?.release();
  }
}
