// @ts-check
/** The ways to a thread that has Python: a worker, or this very thread. */

import { env } from './env.js';

/**
 * @typedef {object} Port
 * @property {boolean} sharesBuffers whether GPUBuffers can go there
 * @property {(message: import('./protocol.js').Request | import('./protocol.js').Piece, transfer: Transferable[]) => void} send
 * @property {() => void} close
 * @property {(tensor: number) => GPUBuffer | undefined} [settle] the buffer of a tensor alone, where it can be shared
 */

/**
 * @param {(message: import('./protocol.js').Answer) => void} receive
 * @param {(message: string) => void} fail
 * @returns {Port}
 */
export function openPort(receive, fail) {
  return inWorker() ? workerPort(receive, fail) : ownPort(receive, fail);
}

/** A worker must be of the page's own origin; where this file is not, Python runs in the caller's thread. */
function inWorker() {
  return env.worker ?? (env.workerUrl !== undefined || new URL(import.meta.url).origin === globalThis.location.origin);
}

/** @type {typeof openPort} */
function workerPort(receive, fail) {
  /** @type {WorkerOptions} */
  const options = { type: 'module', name: 'pyruntime' };
  const worker = env.workerUrl ? new Worker(new URL(env.workerUrl, globalThis.location.href), options)
    : new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'pyruntime' });
  /** @type {Worker | undefined} */
  let downloader;
  worker.addEventListener('message', ({ data }) => {
    if ('downloads' in data) downloader = makeDownloader(data.downloads, (message) => worker.postMessage({ downloads: message }));
    else receive(data);
  });
  worker.addEventListener('error', ({ message }) => (
    fail(`pyruntime's worker failed: ${message || 'it could not be loaded'}`)));
  return {
    sharesBuffers: false,
    send: (message, transfer) => worker.postMessage(message, transfer),
    close: () => {
      worker.terminate();
      downloader?.terminate();
    },
  };
}

/**
 * The thread that downloads for Python's worker, which speaks with it through `port`. The page makes it: Firefox (153) stops a worker
 * that makes a worker, about once in a hundred times for ever.
 * @param {MessagePort} port
 * @param {(message: string) => void} failed hears why there is none, or no longer
 */
export function makeDownloader(port, failed) {
  try {
    const url = new URL('./loading/downloader.js', import.meta.url);
    const worker = new Worker(url, { type: 'module', name: 'pyruntime downloads' });
    worker.addEventListener('error', (event) => {
      event.preventDefault(); // else it is an error of the page, too
      failed(event.message || 'its worker failed');
    });
    worker.postMessage(port, [port]);
    return worker;
  } catch (error) { // another origin's, or forbidden by a policy
    failed(/** @type {Error} */ (error).message);
  }
  return undefined;
}

/** @type {typeof openPort} */
function ownPort(receive, fail) {
  let open = true;
  /** @type {typeof import('./host.js')} */
  let loaded;
  const host = import('./host.js');
  host.then((module) => {
    loaded = module;
    module.whenEnded(fail);
  }, () => {});
  host.catch((error) => fail(`pyruntime could not be loaded: ${error.message}`));
  return {
    sharesBuffers: true,
    send: (message) => {
      host.then(({ answer }) => answer(/** @type {import('./protocol.js').Request} */ (message), (reply) => {
        if (open) receive(reply);
      }), () => {});
    },
    close: () => {
      open = false;
    },
    settle: (tensor) => loaded.settle(tensor),
  };
}
