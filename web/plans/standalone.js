// @ts-check
/**
 * What client.js is to sessions in Python, for those over compiled models: runs are replayed in the page's thread. What a plan
 * does not have, another signature or `explain()`, Python is started for, and does; runs that have a plan go on here, unless
 * they are fed tensors on Python's GPU.
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
 * @typedef {import('./bound_caches.js').Housing} Housing
 */

let lastHandle = 0;

/** What a session talks to instead of the client. */
export class StandaloneClient {
  /** Whether it has texts decoded: what else asks a host about sessions may ask this one. */
  decodes = true;
  /** Whether a text has lacked a plan: the next one begins in Python. */
  lacks = false;
  /** Runs that have been asked for. @type {Replay[]} */
  #replays = [];
  #program;
  #create;
  #housing;
  /** @type {Promise<{owner: ReturnType<typeof client>, handle: number}> | undefined} */
  #python;
  /** @type {Map<number, (view: ArrayBufferView) => void>} */
  #streams = new Map();
  /** @type {Set<Promise<unknown>>} */
  #running = new Set();

  /**
   * @param {Program} program
   * @param {import('../api/protocol.js').CreateArguments} create what Python is asked for
   * @param {Housing | null} housing where plans leave tensors on the GPU
   */
  constructor(program, create, housing) {
    this.#program = program;
    this.#create = create;
    this.#housing = housing;
    lastHandle -= 1;
    this.handle = lastHandle;
    sessions.set(this.handle, this);
  }

  /** Whether GPUBuffers can go to Python, which is where they are. */
  get sharesBuffers() {
    return started()?.sharesBuffers ?? !inWorker();
  }

  /** Who holds Python's tensors. @returns {object} */
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
    if (method === 'keepPlan' && !this.#python) return null; // it is what is kept
    if (method === 'call' && args.function === 'summary' && !this.#python) return this.#program.summary();
    if (method.startsWith('decode')) return (await import('./decoding.js')).ask(this, method, args, transfer, listening);
    const what = method === 'call' ? `${args.function}()` : method;
    const { owner, handle } = await this.start(`${what} was asked for`);
    const changed = method === 'call' ? { ...args, arguments: [handle, ...args.arguments.slice(1)] } : { ...args, session: handle };
    return owner.call(method, changed, transfer, listening);
  }

  /** This session as texts need it; null where nothing of it stays on the GPU. @returns {import('./decoding.js').Here | null} */
  get here() {
    const housing = this.#housing;
    const known = housing && { outputs: this.#outputs.length, replays: this.#replays, replaying: this.#running, spares: housing.spares };
    return known && { housing, known, run: (args) => this.#runHere(args) };
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
   * @param {Map<number, ArrayBufferView>} [streams] to be sent behind it
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
    const running = unlessAborted(this.#replayed(found.entry, given, args), listening.signal, (late) => this.#housing?.drop(late));
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
    if (this.#housing) return this.#housing.run(made, given, sizesOf);
    const replay = await made;
    const sizes = sizesOf(replay, given);
    if (!sizes) throw new Error('it has been released');
    return /** @type {Promise<Record<string, any>>} */ (run(replay, given, sizes, null, []));
  }

  /**
   * The open sizes of such a run; null where the plan of `entry` is for others.
   * @param {Entry} entry
   * @param {Replay} replay
   * @param {Record<string, Fed>} feeds
   * @param {RunArguments} args
   */
  #sizes(entry, replay, feeds, { fetches, kept }) {
    const { downloads, outputs, kept: left } = entry.seen;
    const names = this.#outputs;
    const wanted = downloads.length + outputs.length + left.length === names.length ? null : fetches;
    return (this.#housing?.matches ?? matches)(replay, feeds, wanted, names.length, Object.keys(kept));
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
   * The plan that fits such a run best; null where there is none.
   * @param {RunArguments} args
   */
  #found(args) {
    const { feeds, fetches, kept, options } = args;
    const isOther = Object.keys(options).length || Object.values(kept).some((target) => target)
      || Object.values(feeds).some((value) => Array.isArray(/** @type {any} */ (value)?.data)); // strings
    const given = isOther ? null : feedsOf(feeds, this.#housing?.tensors);
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
  settle(number) {
    return started()?.settle(number);
  }

  /** @param {number} number */
  dispose(number) {
    this.#python?.then(({ owner }) => owner.dispose(number), () => {});
  }

  /** Free everything: what runs use when the last of them is done or aborted, which is not waited for, as one may hang. */
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
    this.#housing?.release();
  }
}

/** @param {ArrayBufferView} view */
function copied({ buffer, byteOffset, byteLength }) {
  return new Uint8Array(buffer.slice(byteOffset, byteOffset + byteLength));
}
