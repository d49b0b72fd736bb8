// @ts-check
/** What a page does that has one model: load the engine, create a session, run. `firstResult` has ms since navigation. */

import { makeInputs } from './inputs.js';

const parameters = new URL(location.href).searchParams;
const model = new URL(parameters.get('model') ?? '', location.href).href;
const feeds = Object.entries(makeInputs(JSON.parse(parameters.get('inputs') ?? '{}')));
/** @type {Record<string, number>} */
const phases = {};

/** What is left to do when the result is there. */
let leave = async () => {};

/**
 * @param {boolean} snapshot whether Python starts from its memory snapshot
 * @param {boolean} cachePlan whether what is planned is kept for the next visit, which then needs no Python
 * @param {string} [plan] compiled for the model
 */
async function ours(snapshot, cachePlan, plan) {
  const { InferenceSession, Tensor, env } = await import(new URL('../web/pyruntime.js', import.meta.url).href);
  if (!snapshot) env.snapshotUrl = null;
  const onProgress = (/** @type {any} */ { phase, status }) => {
    if (status !== 'progress') phases[`${phase} ${status}`] = performance.now();
  };
  const session = await InferenceSession.create(model, { onProgress, cachePlan, plan });
  leave = () => session.release();
  phases.session = performance.now();
  return session.run(Object.fromEntries(feeds.map(([n, { type, data, dims }]) => [n, new Tensor(type, data, dims)])));
}

/** @param {string} bundle @param {string} build of its WebAssembly */
async function peer(bundle, build) {
  const ort = await import(new URL(`../ort/ort.${bundle}.bundle.min.mjs`, import.meta.url).href);
  ort.env.wasm.wasmPaths = { wasm: new URL(`../ort/ort-wasm-simd-threaded.${build}.wasm`, import.meta.url).href };
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = 'error';
  phases.module = performance.now();
  const session = await ort.InferenceSession.create(model, { executionProviders: ['webgpu'] });
  phases.session = performance.now();
  return session.run(Object.fromEntries(feeds.map(([n, { type, data, dims }]) => (
    [n, new ort.Tensor(/** @type {any} */ (type), data, dims)]))));
}

const engine = parameters.get('engine');
const compiled = engine === 'compiled' ? model.replace('.onnx', '.plan') : undefined;
const result = engine === 'peer' ? peer('webgpu', 'asyncify') : engine === 'jspi' ? peer('jspi', 'jspi')
  : ours(engine !== 'plain', engine === 'kept', compiled);
globalThis.firstResult = result.then(async (outputs) => {
  const ms = performance.now();
  const [{ data }] = /** @type {any[]} */ (Object.values(outputs));
  await leave();
  return { ms, phases, output: Array.from(data, Number) };
});
