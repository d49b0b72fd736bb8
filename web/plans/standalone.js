// @ts-check
/**
 * The client of a session over plans: runs are replayed in the page's thread. Python is started for what the plans do not have, such as
 * another shape or `explain()`; later runs that have a plan are replayed again, unless their inputs are on Python's GPU.
 */

import { unlessAborted } from '../api/aborting.js';
import { client, started } from '../api/client.js';
import { cut, Incoming } from '../net/pieces.js';
import { inWorker } from '../api/port.js';
import { matches, otherValues, run } from '../gpu/replay.js';
import { wasteOf } from '../gpu/sizes.js';
import { feedsOf } from '../worker/tensors.js';
import { hold, placesOf, sessions } from './locations.js';

/**
 * @typedef {import('./program.js').Entry} Entry
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
  /** Whether a text has lacked a plan: further texts begin in Python. */
  lacks = false;
  /** Replays that have run. @type {Replay[]} */
  #replays = [];
  #program;
  #create;
  #boundCaches;
  /** @type {Promise<{owner: ReturnType<typeof client>, handle: number}> | undefined} */
  #python;
  /** @type {Map<number, (view: ArrayBufferView) => void>} */
  #streams = new Map();
  /** @type {Set<Promise<unknown>>} */
  #running = new Set();

  /**
   * @param {Program} program
   * @param {import('../api/protocol.js').CreateArguments} create what Python is asked for
   * @param {BoundCaches | null} boundCaches for plans that leave tensors on the GPU
   */
  constructor(program, create, boundCaches) {
    this.#program = program;
    this.#create = create;
    this.#boundCaches = boundCaches;
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
      this.#python = (async () => {
        const owner = client();
        await owner.ready;
        const { handle } = await owner.call('create', this.#create);
        return { owner, handle };
      })();
      this.#python.catch(() => { this.#python = undefined; });
    }
    return this.#python;
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
      const letGo = hold(placesOf(args));
      return unlessAborted(this.#run(args, transfer, listening).finally(letGo), listening.signal);
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
    return known && { boundCaches, known, run: (args) => this.#runHere(args) };
  }

  /** @param {RunArguments} args */
  async #runHere(args) {
    const found = this.#found(args);
    if (!found) {
      const { NoPlan } = await import('./decoding.js');
      throw new NoPlan('no plan runs these inputs and outputs');
    }
    const running = this.#replayed(found.entry, found.given, args);
    this.#running.add(running);
    running.catch(() => { found.entry.seen.live = false; });
    return running.finally(() => this.#running.delete(running));
  }

  /**
   * A run in Python; tensors of the page's go there first.
   * @param {string} why
   * @param {RunArguments} args
   * @param {Transferable[]} transfer
   * @param {import('../api/client.js').Listening} listening
   * @param {Map<number, ArrayBufferView>} [streams] to be sent after it
   */
  async #forward(why, args, transfer, listening, streams = new Map()) {
    const { owner, handle } = await this.start(why);
    const { moved } = await import('./moving.js');
    const answer = owner.call('run', await moved({ ...args, session: handle }, owner), transfer, listening);
    for (const [stream, view] of streams) owner.send(stream, view);
    return answer;
  }

  /**
   * @param {RunArguments} args
   * @param {Transferable[]} transfer
   * @param {import('../api/client.js').Listening} listening
   */
  async #run(args, transfer, listening) {
    const { feeds, fetches } = args;
    const found = this.#found(args);
    if (!found) {
      /** @type {Map<number, ArrayBufferView>} */
      const streams = new Map();
      for (const value of /** @type {any[]} */ (Object.values(feeds))) {
        const stream = value?.data?.stream;
        if (stream) this.#streams.set(stream, (view) => streams.set(stream, copied(view)));
      }
      const replays = this.#program.entries.map(({ seen }) => /** @type {Replay} */ (seen));
      const why = otherValues(replays, /** @type {Record<string, any>} */ (feeds)) || 'no plan runs these inputs and outputs';
      return this.#forward(why, args, transfer, listening, streams);
    }
    const given = this.#received(found.given);
    const running = unlessAborted(this.#replayed(found.entry, given, args), listening.signal, (late) => this.#boundCaches?.drop(late));
    this.#running.add(running);
    try {
      const outputs = await running;
      return fetches ? Object.fromEntries(fetches.map((/** @type {string} */ name) => [name, outputs[name]])) : outputs;
    } catch (error) {
      if (listening.signal?.aborted) throw error;
      found.entry.seen.live = false;
      for (const value of Object.values(given)) {
        if (value.data instanceof Incoming) value.data = await value.data.whole();
      }
      const again = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, value.remote ? feeds[name] : value]));
      const why = `the plan failed (${/** @type {Error} */ (error).message})`;
      return this.#forward(why, { ...args, feeds: /** @type {any} */ (again) }, transfer, listening);
    } finally {
      this.#running.delete(running);
    }
  }

  /**
   * Run the plan of `entry`.
   * @param {Entry} entry
   * @param {Record<string, Fed>} given
   * @param {RunArguments} args
   * @returns {Promise<Record<string, any>>}
   */
  async #replayed(entry, given, args) {
    const made = this.#program.replay(entry);
    made.then((replay) => { if (!this.#replays.includes(replay)) this.#replays.push(replay); }, () => {});
    const sizesOf = (/** @type {Replay} */ replay, /** @type {Record<string, Fed>} */ feeds) => this.#sizes(entry, replay, feeds, args);
    if (this.#boundCaches) return this.#boundCaches.run(made, given, sizesOf);
    const replay = await made;
    const sizes = sizesOf(replay, given);
    if (!sizes) throw new Error('the session was released');
    return /** @type {Promise<Record<string, any>>} */ (run(replay, given, sizes, null, []));
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
    return (this.#boundCaches?.matches ?? matches)(replay, feeds, wanted, names.length, Object.keys(kept));
  }

  /** The feeds with what will arrive in the place of each stream's name. @param {Record<string, any>} feeds */
  #received(feeds) {
    return Object.fromEntries(Object.entries(feeds).map(([name, value]) => {
      const { stream, nbytes } = value.data ?? {};
      if (!stream) return [name, { ...value }];
      const data = new Incoming(nbytes);
      this.#streams.set(stream, (view) => { for (const piece of cut(view)) data.push(piece); });
      return [name, { ...value, data }];
    }));
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

  /** @param {number} stream @param {ArrayBufferView} view */
  send(stream, view) {
    this.#streams.get(stream)?.(view);
    this.#streams.delete(stream);
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

/** @param {ArrayBufferView} view */
function copied({ buffer, byteOffset, byteLength }) {
  return new Uint8Array(buffer.slice(byteOffset, byteOffset + byteLength));
}
