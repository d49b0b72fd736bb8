// @ts-check
/** Runs of sessions: by Python, repeated without it, or begun before they are asked for. */

import { Incoming, KEPT } from '../net/pieces.js';
import { finish, matches, prepare } from '../gpu/replay.js';
import { feedsOf } from './tensors.js';
import { limited } from '../gpu/waiting.js';

/** Runs kept by session: a model is usually run with few different input shapes. */
const REPLAYS = 8;

/**
 * What is known of a session.
 * @typedef {object} Session
 * @property {number} outputs how many its model has
 * @property {import('../gpu/replay.js').Replay[]} replays runs it can replay without Python
 * @property {Set<Promise<unknown>>} replaying those under way
 * @property {import('./tensors.js').Memory[]} spares memory for outputs that stay on the GPU
 * @property {boolean} runsAhead whether it may begin runs before they are asked for
 * @property {import('../speculation/speculation.js').Ahead | null} ahead runs begun before they are asked for
 * @property {import('../loading/loading.js').Held} model its file
 * @property {Record<string, string>} tags strong ETags of its files, by address
 * @property {Promise<string>} [hash] of it
 */

/**
 * @typedef {object} Request
 * @property {number} id
 * @property {AbortSignal} signal
 * @property {ArrayBuffer[]} [spare] gets memory that the page can use again
 *
 * @typedef {object} Host of Python
 * @property {import('./tensors.js').Tensors} tensors that stay on the GPU
 * @property {(session: number) => Session | undefined} known
 * @property {(request: Request, function_: string, ...args: unknown[]) => Promise<any>} call a function of Python's that `cancel` ends
 * @property {import('../speculation/chooser.js').Maker} beside
 */

/** Once it is here: most pages have no use for it. @type {typeof import('../speculation/speculation.js') | null} */
let aheadModule = null;

/** Without it runs are not begun ahead. */
export async function loadAhead() {
  aheadModule ??= await import('../speculation/speculation.js').catch(() => null);
}

/**
 * What begins runs ahead; null as long as that is not here.
 * @param {import('../speculation/chooser.js').Maker} beside
 * @param {ConstructorParameters<typeof import('../speculation/speculation.js').Ahead>[1]} known
 */
export function beginAhead(beside, known) {
  return aheadModule && new aheadModule.Ahead(beside, known);
}

/** Memory of feeds that have been uploaded. @param {Record<string, import('../gpu/replay.js').Fed>} feeds */
function read(feeds) {
  return Object.values(feeds).flatMap(({ data }) => (data instanceof ArrayBuffer && data.byteLength >= KEPT ? [data] : []));
}

/** Of all sessions of a host. */
export class Runs {
  #host;

  /** @param {Host} host */
  constructor(host) {
    this.#host = host;
  }

  /**
   * Values as Python takes them: with its own numbers of tensors on the GPU.
   * @param {Record<string, any>} values
   */
  #forPython(values) {
    return Object.fromEntries(Object.entries(values).map(([name, value]) => (
      [name, value?.kind === 'gpu' ? { ...value, gpu: this.#host.tensors.forPython(value.gpu) } : value])));
  }

  /**
   * Run a session, without Python where it has run like this before, and without waiting where that run has been begun already.
   * @param {import('../api/protocol.js').RunArguments} args
   * @param {Request} request
   */
  async run(args, request) {
    const { session, feeds, fetches, kept, options } = args;
    const known = this.#host.known(session);
    const anew = Object.values(kept).every((target) => target === null);
    const given = known && anew && !Object.keys(options).length ? feedsOf(feeds, this.#host.tensors) : null;
    if (!known?.runsAhead || !Object.keys(kept).length) return this.#runNow(args, given, request);
    known.ahead ??= beginAhead(this.#host.beside, known);
    if (!known.ahead) {
      loadAhead();
      return this.#runNow(args, given, request); // what it is fed may be disposed of while a module loads
    }
    const asked = { fetches, stay: Object.keys(kept) };
    const began = performance.now();
    const begun = known.ahead.take(given, asked);
    if (begun) {
      try {
        return await limited(begun, known.replays[0]?.seconds);
      } catch (error) {
        if (/** @type {Error} */ (error).name === 'Fail') throw error;
        // It is run once more, and tells what is wrong.
      }
    }
    const outputs = await this.#runNow(args, given, request, asked);
    known.ahead.ran(given, asked, outputs, performance.now() - began);
    return outputs;
  }

  /**
   * @param {import('../api/protocol.js').RunArguments} args
   * @param {Record<string, import('../gpu/replay.js').Fed> | null} given the feeds of a run that can be replayed
   * @param {Request} request
   * @param {import('../speculation/speculation.js').Asked | null} [asked] where further runs may be begun behind it
   */
  async #runNow({ session, feeds, fetches, kept, options }, given, request, asked = null) {
    const known = this.#host.known(session);
    const replayed = known && given ? this.#replay(known, given, fetches, Object.keys(kept)) : null;
    if (known && given && replayed) {
      known.replaying.add(replayed.running);
      const foreseen = asked && known.ahead?.follow(replayed.prepared, given, asked);
      try {
        const outputs = await limited(replayed.running, replayed.prepared.replay.seconds);
        await foreseen;
        if (!asked) request.spare?.push(...read(given)); // runs that are begun ahead are compared with what this one was fed
        return outputs;
      } catch (error) {
        replayed.prepared.replay.live = false; // Python finds out why, and mends what can be mended
        if (/** @type {Error} */ (error).name === 'Fail') throw error;
      } finally {
        known.replaying.delete(replayed.running);
      }
    }
    for (const value of /** @type {any[]} */ (Object.values(feeds))) {
      if (value?.data instanceof Incoming) value.data = await value.data.whole();
    }
    const wires = [this.#forPython(feeds), fetches, this.#forPython(kept), options];
    const { outputs, replay: made } = await this.#host.call(request, 'run', session, ...wires);
    if (known && made) {
      if (known.replays.some(({ device }) => device !== made.device)) this.#host.tensors.release(known.spares); // of one that was lost
      const others = known.replays.filter((other) => other.live && other !== made);
      known.replays = [made, ...others].slice(0, REPLAYS);
    }
    for (const [name, value] of Object.entries(outputs)) {
      if (value?.kind === 'gpu') outputs[name] = this.#host.tensors.receive(value, known?.spares ?? null);
    }
    return outputs;
  }

  /**
   * A run without Python under way, where there has been one like it.
   * @param {Session} known
   * @param {Record<string, import('../gpu/replay.js').Fed>} given
   * @param {string[] | null} fetches
   * @param {string[]} stay
   */
  #replay({ replays: made, outputs, spares }, given, fetches, stay) {
    for (const by of made) {
      const sizes = matches(by, given, fetches, outputs, stay);
      const prepared = sizes && prepare(by, given, sizes, this.#host.tensors, spares);
      if (prepared) return { prepared, running: finish(prepared, this.#host.tensors) };
    }
    return null;
  }
}
