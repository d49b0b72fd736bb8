// @ts-check
/**
 * How long a model takes to be ready on a page's first visit and on its second, when a plan of it is kept:
 *
 *   visits.html?models=a,b&post=1&name=visits
 *
 * Milliseconds of `create` and the first `run`, each in a frame of its own: ours without a plan, which it keeps; ours with
 * that plan, without Python; onnxruntime-web twice, so that both find what the browser keeps of compiled shaders.
 */

import { openFrame } from './frames.js';

/** @typedef {{name: string, url: string, inputs: Record<string, import('./inputs.js').InputSpec>}} Model */

const VISITS = ['peer', 'kept', 'kept', 'peer'];

/** @param {Model} model @param {string} engine */
async function visit({ url, inputs }, engine) {
  const { bench, close } = await openFrame(engine);
  try {
    return await bench.visit(new URL(url, location.href).href, inputs);
  } catch (error) {
    return { error: String(error) };
  } finally {
    close();
  }
}

/** @param {Model} model */
async function measure(model) {
  await (await fetch(model.url)).arrayBuffer(); // all find it in the HTTP cache, or none
  const visits = [];
  for (const engine of VISITS) visits.push({ engine, ...await visit(model, engine) });
  return { model: model.name, visits };
}

async function main() {
  const parameters = new URL(location.href).searchParams;
  const wanted = parameters.get('models')?.split(',');
  /** @type {Model[]} */
  const every = await (await fetch('models.json')).json();
  const results = [];
  for (const model of every.filter(({ name }) => !wanted || wanted.includes(name))) {
    const result = await measure(model);
    results.push(result);
    const times = result.visits.map(({ engine, error, create_ms, first_ms, kept }) => (
      `${engine}${kept ? ' (plan)' : ''} ${error ?? `${create_ms.toFixed(0)} + ${first_ms.toFixed(0)}`}`));
    const place = document.getElementById('log');
    if (place) place.textContent += `${model.name}: ${times.join(', ')}\n`;
  }
  if (parameters.get('post')) {
    const body = JSON.stringify({ userAgent: navigator.userAgent, date: new Date().toISOString(), results });
    await fetch(`/result/${parameters.get('name') ?? 'visits'}`, { method: 'POST', body });
  }
  return results;
}

globalThis.visitsResult = main();
