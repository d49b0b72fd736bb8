// @ts-check
/** Runs bench/page/inside.py in the environment that web/worker.js gives to sessions. */

import { snapshot } from './counters.js';
import { places } from '../src/web/api/env.js';
import { startPython } from '../src/web/worker/runtime.js';

const SITE = new URL('../', import.meta.url).href;
const wheelUrl = `${SITE}${places().wheelUrl.split('/').at(-1)}`;

const ready = (async () => {
  const pyodide = await startPython({ ...places(), siteUrl: SITE, pyodideUrl: `${SITE}pyodide/`, wheelUrl, snapshotUrl: `${SITE}snapshot/` }, () => {});
  const source = await (await fetch(new URL('inside.py', import.meta.url))).text();
  pyodide.FS.writeFile('/home/pyodide/bench_inside.py', source);
  return pyodide.pyimport('bench_inside');
})();

/** @type {Record<string, (...args: any[]) => any>} */
const methods = {
  start: async () => { await (await ready).create(new URL('smallest.onnx', import.meta.url).href); },
  create: async (url) => { await (await ready).create(url); },
  feed: async (feeds) => (await ready).feed(feeds),
  run: async () => (await ready).run(),
  times: async (count) => (await ready).times(count),
  counts: () => snapshot(),
  details: async () => (await ready).details(),
  release: async () => (await ready).release(),
};

self.addEventListener('message', async ({ data: { id, method, args } }) => {
  try {
    self.postMessage({ id, value: await methods[method](...args) });
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  }
});
