// @ts-check
/**
 * How long after its last byte a model that arrives at a given rate is ready; served by bench/serve.py:
 *
 *   ready.html?models=a,b&rate=200&engine=ours&visits=1&post=1&name=ready
 *
 * Milliseconds from the last byte that the server sent until `create` is done, and until the first `run` is. Each visit has
 * a frame of its own, in which the engine is up already; with `idle=800` for so many milliseconds. With `engine=kept&visits=2`
 * the second visit has the first one's plan. With `visited=8000` a page with the digits model was open before, for so many
 * milliseconds, in which browsers keep what they compiled of WebAssembly.
 */

import { openFrame } from './frames.js';

/**
 * @param {string} path
 * @param {Record<string, import('./inputs.js').InputSpec>} inputs
 * @param {{engine: string, rate: string, idle: number}} how
 */
async function measure(path, inputs, { engine, rate, idle }) {
  const { bench, close } = await openFrame(engine);
  try {
    if (idle) {
      await bench.start();
      await new Promise((resolve) => { setTimeout(resolve, idle); });
    }
    const visit = await bench.visit(new URL(`/paced/${rate}${path}`, location.href).href, inputs);
    const last = await (await fetch(`/sent${path}`)).json();
    return { ...visit, created_after_ms: visit.created - last, ran_after_ms: visit.ran - last };
  } catch (error) {
    return { error: String(error) };
  } finally {
    close();
  }
}

/** A visit before those that count. @param {import('./visits.js').Model | undefined} model @param {string} engine @param {number} stay */
async function visitBefore(model, engine, stay) {
  if (!model) throw new Error('the page visited before has the digits model, which models.json does not list');
  const { url, inputs } = model;
  const { bench, close } = await openFrame(engine);
  await bench.visit(new URL(url, location.href).href, inputs);
  await new Promise((resolve) => { setTimeout(resolve, stay); });
  close();
}

async function main() {
  const parameters = new URL(location.href).searchParams;
  const how = { engine: parameters.get('engine') ?? 'ours', rate: parameters.get('rate') ?? '200', idle: Number(parameters.get('idle') ?? 0) };
  const wanted = parameters.get('models')?.split(',');
  /** @type {import('./visits.js').Model[]} */
  const every = await (await fetch('models.json')).json();
  const visited = Number(parameters.get('visited') ?? 0);
  if (visited) await visitBefore(every.find(({ name }) => name === 'digits'), how.engine, visited);
  const results = [];
  for (const model of every.filter(({ name }) => !wanted || wanted.includes(name))) {
    const visits = [];
    for (let visit = 0; visit < Number(parameters.get('visits') ?? 1); visit++) {
      visits.push(await measure(new URL(model.url, location.href).pathname, model.inputs, how));
    }
    results.push({ model: model.name, ...how, visited, visits });
    const place = document.getElementById('log');
    const times = visits.map(({ error, created_after_ms, ran_after_ms }) => (
      error ?? `${created_after_ms.toFixed(0)}, ${ran_after_ms.toFixed(0)}`));
    if (place) place.textContent += `${model.name}: ${times.join('; ')}\n`;
  }
  if (parameters.get('post')) {
    const body = JSON.stringify({ userAgent: navigator.userAgent, date: new Date().toISOString(), results });
    await fetch(`/result/${parameters.get('name') ?? 'ready'}`, { method: 'POST', body });
  }
  return results;
}

globalThis.readyResult = main();
