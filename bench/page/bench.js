// @ts-check
/**
 * Both engines on the same models, in turn, each in a frame of its own.
 *
 *   bench.html?models=a,b&runs=30&engines=ours,peer&repeats=1&limit=300&budget=500&post=1
 *
 * reads models.json next to it, runs, stores the result as `globalThis.benchResult` and POSTs it to /result when the
 * address says `post=1`. `limit`: seconds that one step may take; `budget`: seconds after which no other model is begun.
 * Times in milliseconds, sizes in bytes.
 */

import { openFrame } from './frames.js';
import { median, quantile } from './quantiles.js';

/** @typedef {{name: string, url: string, inputs: Record<string, import('./inputs.js').InputSpec>}} Model */

const parameters = new URL(location.href).searchParams;
const runs = Number(parameters.get('runs') ?? 30);
const repeats = Number(parameters.get('repeats') ?? 1);
const names = (parameters.get('engines') ?? 'ours,peer').split(',');
const limitMs = 1000 * Number(parameters.get('limit') ?? 300);
const budgetMs = 1000 * Number(parameters.get('budget') ?? Infinity);
const ROUND = 5;
const WARM_UP = 2;
/** Milliseconds of warming up at least: pyruntime compiles its optimized kernels after a session's first run. */
const WARM_UP_MS = 1000;
const RTOL = 1e-3;
const ATOL = 1e-3;

/** @param {string} line */
function log(line) {
  const place = document.getElementById('log');
  if (place) place.textContent += `${line}\n`;
  console.log(line);
}

/**
 * @template T
 * @param {Promise<T>} work
 * @param {string} what
 * @returns {Promise<T>}
 */
function limited(work, what) {
  return Promise.race([work, new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`${what} took more than ${limitMs / 1000} s`)), limitMs);
  })]);
}

/**
 * The largest |a − b| and whether |a − b| ≤ RTOL·|b| + ATOL·min(1, max |b|) everywhere.
 * @param {any[]} ours
 * @param {any[]} peers
 */
function compare(ours, peers) {
  let largest = 0;
  let same = ours.length === peers.length;
  for (const { name, data, dims } of peers) {
    const own = ours.find((output) => output.name === name);
    if (!own || String(own.dims) !== String(dims)) return { same: false, max_difference: null };
    const expected = Array.from(data, Number);
    const scale = Math.min(1, expected.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0));
    for (let i = 0; i < expected.length; i++) {
      const got = Number(own.data[i]);
      if (Object.is(got, expected[i])) continue;
      const difference = Math.abs(got - expected[i]);
      largest = Math.max(largest, difference);
      if (!(difference <= RTOL * Math.abs(expected[i]) + ATOL * scale)) same = false;
    }
  }
  return { same, max_difference: largest };
}

/**
 * One session on each engine; then runs in rounds of a few, engine by engine, so that both meet the same disturbances.
 * @param {Model} model
 * @param {string[]} order
 */
async function measureOnce(model, order) {
  /** @type {Record<string, any>} */
  const results = {};
  /** @type {Record<string, Awaited<ReturnType<typeof openFrame>>>} */
  const frames = {};
  try {
    for (const engine of order) {
      try {
        frames[engine] = await openFrame(engine);
        const { bench } = frames[engine];
        const start = await limited(bench.start(), `${engine}: start`);
        const url = new URL(model.url, location.href).href;
        results[engine] = { ...start, ...await limited(bench.load(url, model.inputs), `${engine}: load`), runs: [] };
        const until = performance.now() + WARM_UP_MS;
        await bench.run(WARM_UP);
        while (performance.now() < until) await bench.run(1);
      } catch (error) {
        results[engine] = { error: String(error) };
      }
    }
    for (let done = 0; done < runs; done += ROUND) {
      for (const engine of order.filter((name) => !results[name].error)) {
        try {
          const times = await limited(frames[engine].bench.run(Math.min(ROUND, runs - done)), `${engine}: run`);
          results[engine].runs.push(...times);
        } catch (error) {
          results[engine] = { error: String(error) };
        }
      }
    }
    for (const engine of order.filter((name) => !results[name].error)) await frames[engine].bench.release();
  } finally {
    for (const { close } of Object.values(frames)) close();
  }
  return results;
}

/** Medians over repeats of what is one number a session. @param {any[]} results */
function merge(results) {
  const failed = results.find(({ error }) => error);
  if (failed) return failed;
  const merged = { ...results[results.length - 1], runs: results.flatMap((result) => result.runs) };
  for (const result of results) result.ready_ms = result.create_ms + result.first_ms;
  for (const key of ['start_ms', 'create_ms', 'first_ms', 'ready_ms']) {
    merged[key] = median(results.map((result) => result[key]));
  }
  merged.median_ms = median(merged.runs);
  merged.p95_ms = quantile(merged.runs, 0.95);
  return merged;
}

/** @param {Model} model @param {number} index */
async function measure(model, index) {
  await (await fetch(model.url)).arrayBuffer(); // both engines find it in the HTTP cache, or neither
  const collected = [];
  for (let repeat = 0; repeat < repeats; repeat++) {
    const turned = (index + repeat) % 2 ? [...names].reverse() : names;
    collected.push(await measureOnce(model, turned));
  }
  /** @type {Record<string, any>} */
  const engines = Object.fromEntries(names.map((engine) => [engine, merge(collected.map((r) => r[engine]))]));
  const [first, second] = [engines.ours?.outputs, engines.peer?.outputs];
  const check = first && second ? compare(first, second) : null;
  for (const result of Object.values(engines)) delete result.outputs;
  return { model: model.name, engines, check };
}

async function main() {
  /** @type {Model[]} */
  const every = await (await fetch('models.json')).json();
  const wanted = parameters.get('models')?.split(',');
  const models = wanted ? every.filter(({ name }) => wanted.includes(name)) : every;
  const results = [];
  const skipped = [];
  for (const [index, model] of models.entries()) {
    if (performance.now() > budgetMs) {
      skipped.push(model.name);
      continue;
    }
    const result = await measure(model, index);
    results.push(result);
    const line = names.map((engine) => {
      const { error, create_ms, first_ms, median_ms } = result.engines[engine];
      return `${engine} ${error ?? [create_ms, first_ms, median_ms].map((ms) => ms.toFixed(1)).join(' / ')}`;
    });
    log(`${model.name}: ${line.join(', ')}${result.check ? `, same outputs: ${result.check.same}` : ''}`);
  }
  const info = (await navigator.gpu?.requestAdapter())?.info;
  const adapter = info && { vendor: info.vendor, architecture: info.architecture, device: info.device,
                            description: info.description };
  return { date: new Date().toISOString(), userAgent: navigator.userAgent, adapter, runs, repeats,
           cores: navigator.hardwareConcurrency, results, ...(skipped.length ? { skipped } : {}) };
}

globalThis.benchResult = main().catch((error) => ({ error: String(error?.stack ?? error) }));
if (parameters.get('post')) {
  const body = JSON.stringify(await globalThis.benchResult);
  await fetch('/result', { method: 'POST', body });
}
