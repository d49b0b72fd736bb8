// @ts-check
/** Run sessions: by a recording without Python, by Python, or by a speculative run that was started earlier. */

import { Incoming, KEPT } from '../net/pieces.js';
import { watchOf } from '../gpu/long_runs.js';
import { finish, prepareFirst } from '../gpu/replay.js';
import { feedsOf } from './tensors.js';
import { limited } from '../gpu/waiting.js';

/** Limit of replays that are cached for a session: most models are run with few different input shapes. */
const REPLAYS = 8;

/**
 * The worker's state of a session.
 * @typedef {object} Session
 * @property {number} outputs number of the model's outputs
 * @property {import('../gpu/replay.js').Replay[]} replays recordings that run without Python
 * @property {Set<Promise<unknown>>} replaying runs in progress
 * @property {import('./tensors.js').Memory[]} spares unused memory for outputs that stay on the GPU
 * @property {boolean} speculates whether runs may start speculatively
 * @property {import('../speculation/speculation.js').Speculation | null} speculation its speculative runs
 * @property {import('../loading/loading.js').Held} model its file
 * @property {Record<string, string>} tags strong ETags hash of the models files, by address
 * @property {Promise<string>} [hash] of it
 */

/**
 * @typedef {object} Request
 * @property {number} id
 * @property {AbortSignal} signal
 * @property {ArrayBuffer[]} [spare] receives buffers that the page can reuse
 * @property {import('./runtime.js').Report} [report] called with the progress of a long run
 *
 * @typedef {object} Host the host of Python
 * @property {import('./tensors.js').Tensors} tensors that stay on the GPU
 * @property {(session: number) => Session | undefined} known
 * @property {(request: Request, function_: string, ...args: unknown[]) => Promise<any>} call calls a Python function that `cancel` can end
 * @property {import('../speculation/chooser.js').Maker} internalSessions creates and runs internal sessions
 */

/** The speculation module, once it is loaded; most pages do not need it. @type {typeof import('../speculation/speculation.js') | null} */
let speculationModule = null;

/** Load the speculation module; without it there are no speculative runs. */
export async function loadSpeculation() {
  speculationModule ??= await import('../speculation/speculation.js').catch(() => null);
}

/**
 * Create a session's speculation; null while the module is not loaded.
 * @param {import('../speculation/chooser.js').Maker} internalSessions
 * @param {ConstructorParameters<typeof import('../speculation/speculation.js').Speculation>[1]} known
 */
export function startSpeculation(internalSessions, known) {
  return speculationModule && new speculationModule.Speculation(internalSessions, known);
}

/** Collect large buffers of uploaded feeds, for reuse. @param {Record<string, import('../gpu/replay.js').Fed>} feeds */
function read(feeds) {
  return Object.values(feeds).flatMap(({ data }) => (data instanceof ArrayBuffer && data.byteLength >= KEPT ? [data] : []));
}

/** The runs of all sessions of a host. */
export class Runs {
  #host;

  /** @param {Host} host */
  constructor(host) {
    this.#host = host;
  }

  /**
   * Convert values for Python, which has other numbers for tensors on the GPU.
   * @param {Record<string, any>} values
   */
  #forPython(values) {
    return Object.fromEntries(Object.entries(values).map(([name, value]) => (
      [name, value?.kind === 'gpu' ? { ...value, gpu: this.#host.tensors.forPython(value.gpu) } : value])));
  }

  /**
   * Run a session: by a replay if it has run with such inputs before, or by a speculative run that was started earlier.
   * @param {import('../api/protocol.js').RunArguments} args
   * @param {Request} request
   */
  async run(args, request) {
    const { session, feeds, fetches, kept, options } = args;
    const known = this.#host.known(session);
    const anew = Object.values(kept).every((target) => target === null);
    const given = known && anew && !Object.keys(options).length ? feedsOf(feeds, this.#host.tensors) : null;
    if (!known?.speculates || !Object.keys(kept).length) return this.#runNow(args, given, request);
    known.speculation ??= startSpeculation(this.#host.internalSessions, known);
    if (!known.speculation) {
      loadSpeculation();
      return this.#runNow(args, given, request); // not awaited: the page may dispose of the inputs while the module loads
    }
    const requested = { fetches, stay: Object.keys(kept) };
    const began = performance.now();
    const begun = known.speculation.take(given, requested);
    if (begun) {
      try {
        return await limited(begun, known.replays[0]?.seconds);
      } catch (error) {
        if (/** @type {Error} */ (error).name === 'Fail') throw error;
        // The run is repeated below, and reports the error if it persists.
      }
    }
    const outputs = await this.#runNow(args, given, request, requested);
    known.speculation.ran(given, requested, outputs, performance.now() - began);
    return outputs;
  }

  /**
   * Run with feeds of which some are only in this thread's memory; all outputs stay on the GPU.
   * @param {number} session
   * @param {Record<string, import('../gpu/replay.js').Fed>} feeds
   * @param {string[]} outputs
   * @param {Request} request
   */
  runFed(session, feeds, outputs, request) {
    const wires = Object.fromEntries(Object.entries(feeds).map(([name, { type, dims, data, remote }]) => {
      if (!remote) return [name, { type, dims, data }];
      return [name, remote.number ? { kind: 'gpu', type, dims, gpu: remote.number } : { kind: 'buffer', type, dims, buffer: remote.memory.buffer }];
    }));
    const kept = Object.fromEntries(outputs.map((name) => [name, null]));
    return this.run({ session, feeds: /** @type {any} */ (wires), fetches: outputs, kept, options: {} }, request);
  }

  /**
   * @param {import('../api/protocol.js').RunArguments} args
   * @param {Record<string, import('../gpu/replay.js').Fed> | null} given feeds of a run that can be replayed
   * @param {Request} request
   * @param {import('../speculation/speculation.js').Requested | null} [requested] set if speculative runs may follow
   */
  async #runNow({ session, feeds, fetches, kept, options }, given, request, requested = null) {
    const known = this.#host.known(session);
    const asked = requested ?? { fetches, stay: Object.keys(kept) };
    const prepared = known && given ? prepareFirst(known.replays, given, asked, known, this.#host.tensors) : null;
    if (known && given && prepared) {
      const watch = watchOf(request);
      const running = finish(prepared, this.#host.tensors, watch);
      known.replaying.add(running);
      const predicted = requested && known.speculation?.follow(prepared, given, requested);
      try {
        const outputs = await limited(running, prepared.replay.seconds);
        await predicted;
        if (!requested) request.spare?.push(...read(given)); // speculation compares later feeds with these
        return outputs;
      } catch (error) {
        watch.stopped = true;
        if (request.signal.aborted) throw error;
        prepared.replay.live = false; // Python finds the cause and recovers where it can
        if (/** @type {Error} */ (error).name === 'Fail') throw error;
      } finally {
        known.replaying.delete(running);
      }
    }
    for (const value of /** @type {any[]} */ (Object.values(feeds))) {
      if (value?.data instanceof Incoming) value.data = await value.data.whole();
    }
    const wires = [this.#forPython(feeds), fetches, this.#forPython(kept), options];
    const { outputs, replay: made } = await this.#host.call(request, 'run', session, ...wires);
    if (known && made) {
      if (known.replays.some(({ device }) => device !== made.device)) this.#host.tensors.release(known.spares); // the device was lost
      const others = known.replays.filter((other) => other.live && other !== made);
      known.replays = [made, ...others].slice(0, REPLAYS);
    }
    for (const [name, value] of Object.entries(outputs)) {
      if (value?.kind === 'gpu') outputs[name] = this.#host.tensors.receive(value, known?.spares ?? null);
    }
    return outputs;
  }
}
