// @ts-check
/** One engine in a page of its own; the page around it calls `bench`. Times in milliseconds. */

import { engines } from './engines.js';
import { makeInputs } from './inputs.js';

/** @typedef {import('./inputs.js').InputSpec} InputSpec */

/**
 * @template T
 * @param {() => Promise<T>} work
 * @returns {Promise<[T, number]>}
 */
async function clock(work) {
  const begin = performance.now();
  const result = await work();
  return [result, performance.now() - begin];
}

/** The highest JavaScript heap seen while `work` goes on. @template T @param {() => Promise<T>} work */
async function watchHeap(work) {
  let peak = 0;
  const look = () => { peak = Math.max(peak, /** @type {any} */ (performance).memory?.usedJSHeapSize ?? 0); };
  const timer = setInterval(look, 10);
  try {
    return /** @type {const} */ ([await work(), peak]);
  } finally {
    clearInterval(timer);
    look();
  }
}

const name = new URL(location.href).searchParams.get('engine') ?? 'ours';
const loading = clock(() => engines[name]());

globalThis.bench = {
  /** Bring the engine up. */
  async start() {
    const [engine, load] = await loading;
    const [, start] = await clock(() => engine.start());
    return { start_ms: load + start };
  },

  /** @param {string} url @param {Record<string, InputSpec>} specs */
  async load(url, specs) {
    const [engine] = await loading;
    const before = await engine.counts();
    const [[, create], heap] = await watchHeap(() => clock(() => engine.create(url)));
    engine.feed(makeInputs(specs));
    const [outputs, first] = await clock(() => engine.run());
    const created = await engine.counts();
    await engine.run();
    const after = await engine.counts();
    return {
      create_ms: create,
      first_ms: first,
      outputs: Object.entries(outputs).map(([output, { data, dims }]) => ({ name: output, data, dims })),
      gpu_bytes_peak: created.peak,
      gpu_bytes_live: after.live,
      gpu_bytes_before: before.live,
      pipelines: created.pipelines - before.pipelines,
      dispatches: after.dispatches - created.dispatches,
      submits: after.submits - created.submits,
      wasm_bytes: created.wasm,
      js_heap_peak: Math.max(heap, created.heap ?? 0),
      ...await engine.details(),
    };
  },

  /**
   * A visit of a page whose only model this is; `created` and `ran` are milliseconds since 1970.
   * @param {string} url @param {Record<string, InputSpec>} specs
   */
  async visit(url, specs) {
    const [engine] = await loading;
    await engine.start();
    const inputs = makeInputs(specs); // some 50 ms for an image, which count for neither engine
    const [, create] = await clock(() => engine.create(url));
    const created = Date.now();
    engine.feed(inputs);
    const [, first] = await clock(() => engine.run());
    const ran = Date.now();
    const details = await engine.details();
    await engine.release();
    return { create_ms: create, first_ms: first, created, ran, ...details };
  },

  /** @param {number} count */
  async run(count) {
    const [engine] = await loading;
    if (engine.times) return engine.times(count);
    const times = [];
    for (let i = 0; i < count; i++) times.push((await clock(() => engine.run()))[1]);
    return times;
  },

  async release() {
    const [engine] = await loading;
    await engine.release();
  },
};
