// @ts-check
/** Connect to the thread that runs Python: a worker, or this thread. */

import { downloadWorker, pythonHere, pythonWorker } from '../threads.js';
import { env, siteUrl } from './env.js';

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
  requireBrowser();
  return inWorker() ? workerPort(receive, fail) : ownPort(receive, fail);
}

/**
 * Whether Python gets a worker. A sandboxed page can make none, and a worker that pages share makes none: there Python runs in the caller's
 * thread.
 */
export function inWorker() {
  return env.worker ?? ('Worker' in globalThis && globalThis.origin !== 'null');
}

/** Throw where nothing of this can run: outside of browsers, and in a service worker. */
export function requireBrowser() {
  if (!('location' in globalThis)) {
    throw new Error('pyruntime runs models in browsers, and this is none: in Node.js use onnxruntime-node, in Python the package '
      + 'pyruntime-webgpu. On a server that renders pages, create sessions in the browser only, as in an effect or an event handler');
  }
  const scope = /** @type {any} */ (globalThis).ServiceWorkerGlobalScope;
  if (scope && globalThis instanceof scope) {
    throw new Error('pyruntime does not run in a service worker, which cannot import modules on demand: create sessions in a page, or in '
      + "an extension's offscreen document, and send it messages");
  }
}

/**
 * A thread of this build: made by another bundler's address, or by the site's. That must be of the page's origin; a script of another
 * origin is imported by one that has the page's.
 * @param {string} name of its script
 * @param {() => Worker} bundled makes it where the script is next to this module, or where another bundler has put it
 * @returns {Worker}
 */
function makeThread(name, bundled) {
  const site = siteUrl();
  if (site === null || (env.baseUrl === undefined && new URL(site).origin === globalThis.origin)) return bundled();
  const script = `${site}web/${name}`;
  const isOwn = new URL(script).origin === globalThis.origin;
  const own = isOwn ? script : URL.createObjectURL(new Blob([`import ${JSON.stringify(script)};`], { type: 'text/javascript' }));
  return new Worker(own, { type: 'module', name: 'pyruntime' });
}

/** @returns {Worker} */
function makeWorker() {
  try {
    if (!env.workerUrl) return makeThread('worker.js', pythonWorker);
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
  return import('./diagnosis.js').then(
    ({ reasonOf: diagnosed }) => diagnosed(script, siteUrl(), message), () => message); // that is missing, too
}

/** @type {typeof openPort} */
function workerPort(receive, fail) {
  const worker = makeWorker();
  const script = env.workerUrl ? new URL(env.workerUrl, globalThis.location.href).href : `${siteUrl()}web/worker.js`;
  let hasBegun = false;
  const begun = () => {
    hasBegun = true;
    clearTimeout(silent);
  };
  const silent = setTimeout(async () => {
    const fault = await import('./diagnosis.js').then(({ faultOfSilent }) => faultOfSilent(script, siteUrl()), () => '');
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
    const said = `pyruntime's worker failed: ${message || 'it could not be loaded; the Content-Security-Policy must allow it '
      + '(worker-src, with blob: and pyruntime\'s origin where that is another one), or set env.worker = false before the first session'}`;
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
    // env.workerUrl is for policies without blob: addresses.
    const worker = env.workerUrl ? downloadWorker() : makeThread('downloader.js', downloadWorker);
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
    fail(await reasonOf(`${siteUrl()}web/host.js`, `pyruntime could not be loaded: ${error.message}`))));
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
