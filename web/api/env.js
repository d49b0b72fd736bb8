// @ts-check
/** Settings of the runtime, read when the first session is created. */

import { SITE } from '../addresses.js';

export const version = '0.1.0';
const pyodideVersion = '0.29.5';

const ownWheel = new URL(`pyruntime_webgpu-${version}-py3-none-any.whl`, SITE).href;

/** The GPUDevice that the page wants sessions to compute on. @type {GPUDevice | undefined} */
let chosen;

/** @type {() => Promise<GPUDevice>} */
let askForDevice;

/** What answers `env.webgpu.device`. @param {() => Promise<GPUDevice>} ask */
export function answerDevice(ask) {
  askForDevice = ask;
}

/** The device that was set before the first session, if any. */
export function chosenDevice() {
  return chosen;
}

const webgpu = {
  get device() {
    return askForDevice();
  },
  set device(device) {
    if (!device || typeof (/** @type {any} */ (device).createBuffer) !== 'function') {
      throw new TypeError('env.webgpu.device must be a GPUDevice');
    }
    chosen = /** @type {any} */ (device);
  },
};

/** @type {import('../pyruntime.js').Env} */
export const env = {
  worker: undefined,
  workerUrl: undefined,
  pyodideUrl: undefined,
  wheelUrl: ownWheel,
  snapshotUrl: undefined,
  hostWork: 1 << 19,
  runAhead: true,
  versions: { pyruntime: version, pyodide: pyodideVersion },
  wasm: {},
  webgl: {},
  webgpu,
};

/**
 * The folders that may hold Pyodide, in the order in which they are tried: the one that `env.pyodideUrl` names and no
 * other, else the copy that `dev.py build` puts next to web/, else Pyodide's CDN at the exact version.
 * @returns {string[]}
 */
function pyodideUrls() {
  if (env.pyodideUrl) return [folder(env.pyodideUrl)];
  const vendored = new URL('pyodide/', SITE).href;
  return [vendored, `https://cdn.jsdelivr.net/pyodide/v${pyodideVersion}/full/`];
}

/** @param {string} url */
function folder(url) {
  return new URL(String(url).replace(/\/?$/, '/'), globalThis.location.href).href;
}

/**
 * The folder of the memory snapshot: the one that `env.snapshotUrl` names, else the one that `dev.py build` puts next to
 * web/, unless it would be of another Pyodide or another wheel than the settings want.
 * @returns {string | undefined}
 */
function snapshotUrl() {
  if (env.snapshotUrl) return folder(env.snapshotUrl);
  const own = env.snapshotUrl === undefined && !env.pyodideUrl && env.wheelUrl === ownWheel;
  return own ? new URL('snapshot/', SITE).href : undefined;
}

/** Where the worker finds what it starts Python from. @returns {import('./protocol.js').StartArguments} */
export function places() {
  return { pyodideUrls: pyodideUrls(), wheelUrl: env.wheelUrl, snapshotUrl: snapshotUrl() };
}
