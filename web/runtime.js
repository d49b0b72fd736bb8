// @ts-check
/** Starts Python in the worker that imports this: Pyodide, NumPy, pyruntime's wheel. */

import * as player from './player.js';

/** @typedef {import('./pyruntime.js').ProgressEvent} ProgressEvent */
/** @typedef {(event: ProgressEvent) => void} Report */

/**
 * Run `work` as a phase: report its begin, and its end with the time it took.
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

/** The server does not have what a URL names. Python's class of that name means the same. */
class NoSuchFile extends Error {
  name = 'NoSuchFile';
}

/**
 * The response's bytes.
 * @param {string} url
 * @param {(loaded: number, total: number | undefined) => void} [onProgress]
 * @returns {Promise<ArrayBuffer>}
 */
export async function fetchBytes(url, onProgress) {
  const response = await fetch(url).catch((error) => {
    throw new NoSuchFile(`${url} cannot be fetched: ${error.message}`);
  });
  if (!response.ok || !response.body) {
    throw new NoSuchFile(`${url} cannot be fetched: HTTP status ${response.status} ${response.statusText}`);
  }
  if (!onProgress) return response.arrayBuffer();
  // A compressed response's Content-Length counts other bytes than those that arrive.
  const length = response.headers.has('Content-Encoding') ? null : response.headers.get('Content-Length');
  const total = length ? Number(length) : undefined;
  let loaded = 0;
  const counted = response.body.pipeThrough(new TransformStream({
    transform(chunk, controller) {
      loaded += chunk.byteLength;
      onProgress(loaded, total);
      controller.enqueue(chunk);
    },
  }));
  return new Response(counted).arrayBuffer();
}

/**
 * How much this worker has fetched from below `url`, in bytes as they were sent.
 * @param {string} url
 */
function bytesFetched(url) {
  const entries = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType('resource'));
  return entries.reduce((sum, { name, encodedBodySize }) => sum + (name.startsWith(url) ? encodedBodySize : 0), 0);
}

/**
 * Pyodide's module from the first of `urls` that has it.
 * @param {string[]} urls
 * @returns {Promise<{loadPyodide: (options: object) => Promise<any>, indexURL: string}>}
 */
async function importPyodide(urls) {
  const failures = [];
  for (const indexURL of urls) {
    try {
      const { loadPyodide } = await import(`${indexURL}pyodide.mjs`);
      return { loadPyodide, indexURL };
    } catch (error) {
      failures.push(`${indexURL}: ${/** @type {Error} */ (error).message}`);
    }
  }
  throw new Error(`Pyodide is in none of these places:\n${failures.join('\n')}`);
}

/**
 * Start Python. Everything that needs no other part is under way at once: Pyodide with NumPy, the wheel, and the GPU
 * process, which the first request for an adapter wakes.
 * @param {import('./protocol.js').StartArguments} places
 * @param {Report} report
 * @returns {Promise<any>} Pyodide, with `pyruntime` installed and `web/player.js` as the module `pyruntime_player`
 */
export async function startPython({ pyodideUrls, wheelUrl }, report) {
  const wheel = timed(report, 'wheel', () => (
    fetchBytes(wheelUrl, (loaded, total) => report({ phase: 'wheel', status: 'progress', loaded, total }))));
  const adapter = timed(report, 'adapter', async () => { await navigator.gpu?.requestAdapter(); });
  wheel.catch(() => {}); // awaited below, when Pyodide is there
  adapter.catch(() => {}); // the device asks again, and says what is wrong
  const pyodide = await timed(report, 'pyodide', async () => {
    const { loadPyodide, indexURL } = await importPyodide(pyodideUrls);
    const count = () => report({ phase: 'pyodide', status: 'progress', loaded: bytesFetched(indexURL) });
    const timer = setInterval(count, 200);
    try {
      return await loadPyodide({ indexURL, packages: ['numpy'], stdout: () => {} });
    } finally {
      clearInterval(timer);
      count();
    }
  });
  pyodide.setStdout(); // only Pyodide's own messages while it loads are silenced
  const sitePackages = pyodide.pyimport('sysconfig').get_path('purelib');
  pyodide.unpackArchive(await wheel, 'wheel', { extractDir: sitePackages });
  pyodide.registerJsModule('pyruntime_player', player);
  return pyodide;
}
