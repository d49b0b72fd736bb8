// @ts-check
/** Start Python in this thread: Pyodide, NumPy, pyruntime. */

import * as device from '../gpu/device.js';
import { fixStack } from './stack.js';
import { PYTHON_BYTES } from '../sizes.js';
import { importUrl } from '../snapshot/importing.js';
import { compile, locateIn, located, received, siteAddress } from '../snapshot/memory.js';
import { placeLibraries, restorePython, snapshotsFit } from '../snapshot/snapshot.js';
import { fetchAll } from '../net/stream.js';

/** @typedef {import('../pyruntime.js').ProgressEvent} ProgressEvent */
/** @typedef {(event: ProgressEvent) => void} Report */

/**
 * Run `work` as a phase: report its start, and its end with the time it took.
 * @template T
 * @param {Report} report
 * @param {string} phase
 * @param {() => Promise<T> | T} work
 * @returns {Promise<T>}
 */
export async function timed(report, phase, work) {
  const begin = performance.now();
  report({ phase, status: 'begin' });
  const result = await work();
  report({ phase, status: 'end', ms: performance.now() - begin });
  return result;
}

/** An empty WebAssembly module. */
const EMPTY = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]);

/** Throw if this thread cannot compile WebAssembly, where Pyodide would wait forever. */
function requireWebAssembly() {
  if (typeof WebAssembly === 'undefined') throw new Error('this browser has no WebAssembly, which Python needs: use another one');
  try {
    new WebAssembly.Module(EMPTY);
  } catch {
    throw new Error("the Content-Security-Policy forbids Python's code: add 'wasm-unsafe-eval' to its script-src, in the headers of "
      + 'the page and of web/worker.js');
  }
}

/**
 * Return the bytes that this worker has fetched from below `url`, as transferred; without the snapshot's memory, which is counted as it
 * arrives.
 * @param {string} url
 */
function bytesFetched(url) {
  const entries = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType('resource'));
  const counted = entries.map(({ name, encodedBodySize }) => ({ name: siteAddress(name), encodedBodySize }))
    .filter(({ name }) => name.startsWith(url) && !name.endsWith('/memory.bin'));
  return counted.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0);
}

/**
 * Import Pyodide's module.
 * @param {string} indexURL
 * @returns {Promise<{loadPyodide: (options: object) => Promise<any>, version: string}>}
 */
async function importPyodide(indexURL) {
  const url = located(`${indexURL}pyodide.mjs`);
  try {
    return await importUrl(url);
  } catch (error) {
    throw new Error(`${url} cannot be imported (${/** @type {Error} */ (error).message}): set env.baseUrl to the address of a copy of `
      + "pyruntime's package, before the first session");
  }
}

/**
 * Load Pyodide as a phase, with the bytes that come from `folders`.
 * @param {Report} report
 * @param {string[]} folders
 * @param {() => Promise<any>} load
 */
function loadingPyodide(report, folders, load) {
  const count = () => report({
    phase: 'pyodide', status: 'progress', loaded: folders.reduce((sum, folder) => sum + bytesFetched(folder), received.bytes),
    total: PYTHON_BYTES || undefined });
  return timed(report, 'pyodide', async () => {
    const timer = setInterval(count, 200);
    try {
      return await load();
    } finally {
      clearInterval(timer);
      count();
    }
  });
}

/** Fetch an archive as the phase 'wheel'. @param {Report} report @param {string} url */
function fetchWheel(report, url) {
  const archive = timed(report, 'wheel', async () => {
    const onProgress = (/** @type {number} */ loaded, /** @type {number | undefined} */ total) => (
      report({ phase: 'wheel', status: 'progress', loaded, total }));
    return (await fetchAll(located(url), { onProgress })).arrayBuffer();
  });
  archive.catch(() => {}); // awaited after Pyodide is loaded
  return archive;
}

// Only Pyodide's own messages while it loads are silenced.
const QUIET = { stdout: () => {} };

/**
 * Start Python from the memory snapshot; null if there is none, or it does not match.
 * @param {import('../api/protocol.js').StartArguments} places
 * @param {Report} report
 */
async function startFromSnapshot({ pyodideUrl: indexURL, snapshotUrl }, report) {
  if (!snapshotUrl || !snapshotsFit()) return null;
  try {
    return await loadingPyodide(report, [indexURL, snapshotUrl], () => (
      restorePython(snapshotUrl, indexURL, QUIET, (files) => {
        timed(report, 'wheel', () => files).catch(() => {}); // the caller awaits `files` and reports the error
      })));
  } catch (error) {
    console.info(`pyruntime: Python starts without its snapshot: ${/** @type {Error} */ (error).message}`);
    return null;
  }
}

/**
 * Start Python without a snapshot.
 * @param {import('../api/protocol.js').StartArguments} places
 * @param {Report} report
 */
async function startFromNothing({ pyodideUrl: indexURL, wheelUrl }, report) {
  const wheel = fetchWheel(report, wheelUrl);
  const pyodide = await loadingPyodide(report, [indexURL], async () => {
    const { loadPyodide, version } = await importPyodide(indexURL);
    const placed = await placeLibraries(indexURL, compile(`${indexURL}pyodide.asm.wasm`), [], async () => {}, { version });
    try {
      return await loadPyodide({ ...QUIET, ...placed.options, indexURL, packages: ['numpy'] });
    } finally {
      placed.restore();
    }
  });
  const sitePackages = pyodide.pyimport('sysconfig').get_path('purelib');
  pyodide.unpackArchive(await wheel, 'wheel', { extractDir: sitePackages });
  return pyodide;
}

/**
 * Load Pyodide with pyruntime. Independent parts load in parallel: Pyodide with NumPy, the package, and the GPU process, which the first
 * request for an adapter starts.
 * @param {import('../api/protocol.js').StartArguments} places
 * @param {Report} report
 * @param {(message: string) => void} ended called with the reason when Python has ended
 * @returns {Promise<any>} Pyodide, with `pyruntime` installed and `web/gpu/device.js` as the module `pyruntime_device`
 */
export async function startPython(places, report, ended) {
  locateIn(places.moved);
  performance.mark('pyruntime: adapter asked'); // device/webgpu/adapter.py waits for the GPU process, counted from this mark
  const adapter = timed(report, 'adapter', async () => { await navigator.gpu?.requestAdapter(); });
  adapter.catch(() => {}); // the device requests it again, and reports the error
  const pyodide = await startFromSnapshot(places, report) ?? await startFromNothing(places, report);
  pyodide.setStdout();
  fixStack(pyodide._module);
  pyodide._api.on_fatal = (/** @type {any} */ error) => ended(`Python has ended, and its sessions with it: ${error?.message ?? error}`);
  pyodide.registerJsModule('pyruntime_device', device);
  return pyodide;
}

/**
 * Start Python. If a file is missing or differs from the build's, the error names it.
 * @param {import('../api/protocol.js').StartArguments} places
 * @param {Report} report
 * @param {(message: string) => void} ended called with the reason when Python has ended
 * @returns {Promise<any>} Python's `pyruntime.bridge.requests`
 */
export async function startBridge(places, report, ended) {
  requireWebAssembly();
  try {
    const pyodide = await startPython(places, report, ended);
    return await timed(report, 'import', () => pyodide.pyimport('pyruntime.bridge.requests'));
  } catch (error) {
    const { faultOfPython } = await import('../api/diagnosis.js');
    const fault = await faultOfPython(places);
    throw fault ? Object.assign(new Error(`Python does not start: ${fault}`), { name: 'Fail' }) : error;
  }
}
