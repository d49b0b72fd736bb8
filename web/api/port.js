// @ts-check
/** Connect to the thread that runs Python: a worker, or this thread. */

import { downloadWorker, pythonHere, pythonWorker } from '../threads.js';
import { env, siteUrl } from './env.js';

/** Milliseconds of silence after which a worker's files are checked: a worker that cannot load them may report no error. */
const SILENT_MS = 5000;

/**
 * @typedef {object} Port
 * @property {boolean} sharesBuffers whether GPUBuffers can be passed to it
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
 * Return whether Python runs in a worker. Sandboxed pages cannot create workers, and shared workers do not: there Python runs in the
 * caller's thread.
 */
export function inWorker() {
  return env.worker ?? ('Worker' in globalThis && globalThis.origin !== 'null');
}

/** Throw outside of browsers and in a service worker, where nothing can run. */
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
 * Create a thread of this build from another bundler's address or the site's. Workers need a script of the page's origin, so a script of
 * another origin is imported by one of the page's.
 * @param {string} name name of its script
 * @param {() => Worker} bundled creates it if the script is next to this module, or where another bundler has put it
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
 * Return why Python's thread did not start: the fault of one of its files, else the browser's message.
 * @param {string} script the thread's script
 * @param {string} message
 */
function reasonOf(script, message) {
  return import('./diagnosis.js').then(
    ({ reasonOf: diagnosed }) => diagnosed(script, siteUrl(), message), () => message); // the module of diagnosis is missing too
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
 * Create the thread that downloads for Python's worker and communicates with it through `port`. The page creates it, because in Firefox
 * (153) about one worker in a hundred that creates a worker hangs.
 * @param {MessagePort} port
 * @param {(message: string) => void} failed called with the reason if the thread cannot be created, or has ended
 */
export function makeDownloader(port, failed) {
  try {
    // env.workerUrl is for policies that forbid blob: URLs.
    const worker = env.workerUrl ? downloadWorker() : makeThread('downloader.js', downloadWorker);
    worker.addEventListener('error', (event) => {
      event.preventDefault(); // else it would also be an error of the page
      failed(event.message || 'its worker failed');
    });
    worker.postMessage(port, [port]);
    return worker;
  } catch (error) { // of another origin, or forbidden by a policy
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
