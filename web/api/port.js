// @ts-check
/** Connect to the thread that runs Python: a worker, or this thread. */

import { WEB } from '../addresses.js';
import { downloadWorker, pythonHere, pythonWorker } from '../threads.js';
import { env } from './env.js';

/** Milliseconds after which the files of a worker that has said nothing are looked at: one that is cut off may be silent. */
const SILENT_MS = 5000;

/**
 * @typedef {object} Port
 * @property {boolean} sharesBuffers whether GPUBuffers can go there
 * @property {(message: import('./protocol.js').Request | import('./protocol.js').Piece, transfer: Transferable[]) => void} send
 * @property {() => void} close
 * @property {(tensor: number) => GPUBuffer | undefined} [materialize] moves a tensor to a buffer that holds it alone, where buffers can be shared
 */

/**
 * @param {(message: import('./protocol.js').Answer) => void} receive
 * @param {(message: string) => void} fail
 * @returns {Port}
 */
export function openPort(receive, fail) {
  refuseServiceWorker();
  return inWorker() ? workerPort(receive, fail) : ownPort(receive, fail);
}

/**
 * Whether Python gets a worker: that must be of the page's own origin, which a sandboxed page has none of, and a worker that pages share
 * makes none. Elsewhere Python runs in the caller's thread.
 */
export function inWorker() {
  if (env.worker !== undefined) return env.worker;
  return 'Worker' in globalThis && (env.workerUrl !== undefined || new URL(WEB).origin === globalThis.origin);
}

/** Throw in a service worker, where nothing of this can run. */
export function refuseServiceWorker() {
  const scope = /** @type {any} */ (globalThis).ServiceWorkerGlobalScope;
  if (scope && globalThis instanceof scope) {
    throw new Error('pyruntime does not run in a service worker, which cannot import modules on demand: create sessions in a page, or in '
      + "an extension's offscreen document, and send it messages");
  }
}

/** @returns {Worker} */
function makeWorker() {
  try {
    if (!env.workerUrl) return pythonWorker();
    return new Worker(new URL(env.workerUrl, globalThis.location.href), { type: 'module', name: 'pyruntime' });
  } catch (error) {
    throw new Error(`no worker can be made here (${/** @type {Error} */ (error).message}): leave env.worker and env.workerUrl undefined, `
      + 'or set env.worker = false before the first session, so that Python runs in this thread');
  }
}

/**
 * Why a thread of Python's has not begun: what is wrong with a file of it, else what the browser says.
 * @param {string} script that the thread begins with
 * @param {string} message
 */
function reasonOf(script, message) {
  return import('./diagnosis.js').then(({ reasonOf: diagnosed }) => diagnosed(script, message), () => message); // that is missing, too
}

/** @type {typeof openPort} */
function workerPort(receive, fail) {
  const worker = makeWorker();
  const script = env.workerUrl ? new URL(env.workerUrl, globalThis.location.href).href : `${WEB}worker.js`;
  let hasBegun = false;
  const begun = () => {
    hasBegun = true;
    clearTimeout(silent);
  };
  const silent = setTimeout(async () => {
    const fault = await import('./diagnosis.js').then(({ faultOfSilent }) => faultOfSilent(script), () => '');
    if (fault && !hasBegun) fail(fault);
  }, SILENT_MS);
  /** @type {Worker | undefined} */
  let downloader;
  worker.addEventListener('message', ({ data }) => {
    if ('id' in data) begun();
    if ('downloads' in data) downloader = makeDownloader(data.downloads, (message) => worker.postMessage({ downloads: message }));
    else receive(data);
  });
  worker.addEventListener('error', async ({ message }) => {
    const said = `pyruntime's worker failed: ${message || 'it could not be loaded; the Content-Security-Policy must allow it (worker-src), '
      + 'or set env.worker = false before the first session'}`;
    fail(hasBegun ? said : await reasonOf(script, said));
  });
  return {
    sharesBuffers: false,
    send: (message, transfer) => worker.postMessage(message, transfer),
    close: () => {
      begun();
      worker.terminate();
      downloader?.terminate();
    },
  };
}

/**
 * The thread that downloads for Python's worker, which speaks with it through `port`. The page makes it: Firefox (153) stops a worker
 * that makes a worker, about once in a hundred times for ever.
 * @param {MessagePort} port
 * @param {(message: string) => void} failed is called with the reason where none can be created, or it has ended
 */
export function makeDownloader(port, failed) {
  try {
    const worker = downloadWorker();
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
  /** @type {typeof import('../host.js')} */
  let loaded;
  const host = pythonHere();
  host.then((module) => {
    loaded = module;
    module.whenEnded(fail);
  }, () => {});
  host.catch(async (error) => (
    fail(await reasonOf(`${WEB}host.js`, `pyruntime could not be loaded: ${error.message}`))));
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
    materialize: (tensor) => loaded.materialize(tensor),
  };
}
