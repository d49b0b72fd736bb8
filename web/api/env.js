// @ts-check
/** Settings of the runtime, read when the first session is created. */

import { SITE } from '../addresses.js';
import { FILES } from '../files.js';

export const version = '0.1.0';
/** Version of the site's Pyodide; the build updates it from tools/devkit/pins.py. */
const pyodideVersion = '0.29.5';
const WHEEL = `pyruntime_webgpu-${version}-py3-none-any.whl`;

/** Placeholder for the site's folder if another bundler has moved its files. */
const NOWHERE = 'https://pyruntime.invalid/';

/** The GPUDevice that the page chose for sessions. @type {GPUDevice | undefined} */
let chosen;

/** @type {() => Promise<GPUDevice>} */
let askForDevice;

/** Set the function that answers `env.webgpu.device`. @param {() => Promise<GPUDevice>} ask */
export function answerDevice(ask) {
  askForDevice = ask;
}

/** Return the device that was set before the first session, if any. */
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
  baseUrl: undefined,
  workerUrl: undefined,
  pyodideUrl: undefined,
  wheelUrl: undefined,
  snapshotUrl: undefined,
  hostWork: 1 << 19,
  runAhead: true,
  versions: { pyruntime: version, pyodide: pyodideVersion },
  wasm: {},
  webgl: {},
  webgpu,
};

/** @param {string} url */
function folder(url) {
  return new URL(String(url).replace(/\/?$/, '/'), globalThis.location.href).href;
}

/**
 * Return the site's folder: `env.baseUrl`, else the folder of all FILES; null if another bundler has moved them.
 * @returns {string | null}
 */
export function siteUrl() {
  if (env.baseUrl !== undefined) return folder(env.baseUrl);
  const [first] = Object.entries(FILES);
  const base = first ? first[1].slice(0, -first[0].length) : SITE;
  return Object.entries(FILES).every(([path, url]) => url === base + path) ? base : null;
}

/**
 * Return the addresses that a thread starts Python from. The memory snapshot belongs to the site's Pyodide and wheel and is not used with
 * others.
 * @returns {import('./protocol.js').StartArguments}
 */
export function places() {
  const found = siteUrl();
  const site = found ?? NOWHERE;
  const isOwn = !env.pyodideUrl && !env.wheelUrl && env.snapshotUrl === undefined;
  return {
    siteUrl: site,
    pyodideUrl: env.pyodideUrl ? folder(env.pyodideUrl) : `${site}pyodide/`,
    wheelUrl: env.wheelUrl ? new URL(env.wheelUrl, globalThis.location.href).href : site + WHEEL,
    snapshotUrl: env.snapshotUrl ? folder(env.snapshotUrl) : isOwn ? `${site}snapshot/` : undefined,
    moved: found === null ? Object.fromEntries(Object.entries(FILES).map(([path, url]) => [site + path, url])) : {},
  };
}
