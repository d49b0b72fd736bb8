// @ts-check
/**
 * Download files in a separate worker, so that Python neither delays streams nor waits for them to start and plan. Without such a worker,
 * or if it is not ready when Python is, files are downloaded in this thread. Between downloads the worker allocates memory for results
 * (gpu/result_memory.js).
 */

import { WEB } from '../addresses.js';
import { openFile } from './download.js';
import { withResolvers } from '../api/resolvers.js';

/** @typedef {import('./download.js').Opened} Opened */
/** @typedef {import('./download.js').Receiver} Receiver */

/**
 * Firefox (153) routes MessagePort messages through its main process: 90 MB take 0.3 to 0.4 s, more than a download thread gains.
 */
const portsCopy = /Firefox\//.test(globalThis.navigator?.userAgent ?? '');

/** Sends a command for a file to downloader.js. @typedef {(method: string, ...args: unknown[]) => void} Send */

/**
 * A file that the worker downloads.
 * @param {Send} send
 * @param {AbortSignal} signal
 * @param {() => void} over called after the last message
 */
function fileElsewhere(send, signal, over) {
  const [answer, ahead] = [withResolvers(), withResolvers()];
  /** @type {Receiver | null} */
  let receiver = null;
  let isOver = false;
  const stopped = () => fail(signal.reason);
  signal.addEventListener('abort', stopped, { once: true });

  function end() {
    isOver = true;
    ahead.resolve(null);
    signal.removeEventListener('abort', stopped);
    send('stop');
    over();
  }

  /** @param {unknown} error */
  function fail(error) {
    if (receiver) receiver.failed(error);
    else answer.reject(error);
    end();
  }

  /** @param {string} method @param {Receiver} follower */
  function follow(method, follower) {
    receiver = follower;
    send(method);
  }

  return {
    /** @param {string} url @param {boolean} isModel @param {RequestCache} [cache] @returns {Promise<Opened>} */
    async open(url, isModel, cache) {
      send('open', url, isModel, cache);
      return {
        ...await answer.promise,
        pieces: (follower) => follow('pieces', follower),
        into: (follower) => follow('into', follower),
        ahead(wanted) {
          if (!isOver) send('ahead', wanted);
          return ahead.promise;
        },
        isElsewhere: true,
      };
    },

    /** @param {string} what @param {any[]} args */
    hear(what, args) {
      if (isOver) return;
      if (what === 'opened') answer.resolve(args[0]);
      else if (what === 'ahead') ahead.resolve(args[0]);
      else if (what === 'failed') fail(Object.assign(new Error(args[0].message), args[0]));
      else /** @type {any} */ (receiver)?.[what]?.(...args);
      if (what === 'ended') end();
    },
  };
}

class Downloads {
  /** @type {MessagePort | null} */
  #port = null;
  #isReady = false;
  /** Fulfilled when the worker is ready, or files no longer wait for it. */
  #awaited = withResolvers();
  #last = 0;
  /** @type {Map<number, ReturnType<typeof fileElsewhere>>} */
  #files = new Map();
  /** @type {Set<string>} */
  #asked = new Set();
  /** Pending requests for memory, in order. @type {ReturnType<typeof withResolvers>[]} */
  #memory = [];

  /** The URLs of the worker's scripts, without those that this thread imports too, and of its downloads. */
  get resources() {
    return [...(this.#isReady ? [`${WEB}downloader.js`] : []), ...this.#asked];
  }

  /**
   * Start the download thread, if possible.
   * @param {Promise<unknown>} python files wait for the thread until this is fulfilled
   * @param {(port: MessagePort) => void} make requests the worker from the page (port.js), which calls `failed` if it cannot create one
   */
  start(python, make) {
    if (this.#port || portsCopy) return;
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data: [file, what, ...args] }) => {
      if (what === 'memory') this.#memory.shift()?.resolve(args[0]);
      else if (what !== 'ready') this.#files.get(file)?.hear(what, args);
      else {
        this.#isReady = true;
        this.#awaited.resolve(undefined);
      }
    };
    this.#port = port1;
    python.finally(() => this.#awaited.resolve(undefined)).catch(() => {}); // the caller that awaits Python reports the error
    make(port2);
  }

  /** There is no download thread, or it has ended. @param {string} message */
  failed(message) {
    this.#isReady = false;
    this.#awaited.resolve(undefined);
    const failed = { name: 'Fail', message: `downloads have ended (${message}): create the session again` };
    for (const file of [...this.#files.values()]) file.hear('failed', [failed]);
    for (const { reject } of this.#memory.splice(0)) reject(failed);
  }

  /**
   * Return zeroed memory with faulted-in pages, allocated by the thread; rejected without one.
   * @param {number} nbytes
   * @returns {Promise<ArrayBuffer>}
   */
  async memory(nbytes) {
    if (!this.#port || !this.#isReady) throw new Error('there is no thread that makes memory');
    const made = withResolvers();
    this.#memory.push(made);
    this.#port.postMessage([0, 'memory', nbytes]);
    return made.promise;
  }

  /**
   * Request the file at `url`.
   * @param {string} url
   * @param {boolean} isModel whether to keep the parts of the file that the graph is read from
   * @param {AbortSignal} signal
   * @param {RequestCache} [cache]
   * @returns {Promise<Opened>}
   */
  async open(url, isModel, signal, cache) {
    const port = this.#port;
    if (port) await this.#awaited.promise;
    signal.throwIfAborted();
    if (!port || !this.#isReady) return openFile(url, isModel, signal, cache);
    this.#last += 1;
    const number = this.#last;
    const file = fileElsewhere((method, ...args) => port.postMessage([number, method, ...args]), signal, () => this.#files.delete(number));
    this.#files.set(number, file);
    const { href } = new URL(url, globalThis.location.href);
    this.#asked.add(href);
    return file.open(href, isModel, cache);
  }
}

export const downloads = new Downloads();
