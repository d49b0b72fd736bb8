// @ts-check
import { InferenceSession, Tensor } from '../../../pyruntime.js';
import { isEmulated, readAdapter } from '../adapter.js';
import { barList } from '../charts.js';
import { h } from '../../dom.js';
import { formatCount, formatTime, formatValue, median } from '../format.js';
import { table } from './table.js';

const RUNS = 15;
const SECONDS = 4;

/** @typedef {import('./inspector.js').Opened} Opened */
/** @typedef {Record<string, Tensor>} Tensors */

/**
 * Run the model on GPU and CPU alternately, with the same input.
 * @param {InferenceSession} gpu
 * @param {Opened} opened
 * @param {Tensors} feeds
 * @param {AbortSignal} signal
 * @param {(text: string) => void} say
 */
export async function compare(gpu, opened, feeds, signal, say) {
  say('Loading the model for the CPU');
  const cpu = await InferenceSession.create(opened.model, {
    externalData: opened.external, executionProviders: ['cpu'], signal });
  try {
    const sides = [{ title: 'GPU', session: gpu, first: 0, times: /** @type {number[]} */ ([]), outputs: /** @type {Tensors} */ ({}) },
      { title: 'CPU', session: cpu, first: 0, times: /** @type {number[]} */ ([]), outputs: /** @type {Tensors} */ ({}) }];
    for (const side of sides) {
      say(`First run on the ${side.title}`);
      [side.outputs, side.first] = await timed(() => side.session.run(feeds, { signal }));
    }
    const begin = performance.now();
    for (let run = 0; run < RUNS && (run < 1 || performance.now() - begin < SECONDS * 1000); run++) {
      say(`Run ${run + 1} of up to ${RUNS}, GPU and CPU alternating`);
      for (const side of sides) side.times.push((await timed(() => side.session.run(feeds, { signal })))[1]);
    }
    const adapter = (await gpu.summary()).adapter && await readAdapter();
    return view(sides, difference(sides[0].outputs, sides[1].outputs), adapter);
  } finally {
    await cpu.release();
  }
}

/** @template T @param {() => Promise<T>} work @returns {Promise<[T, number]>} */
async function timed(work) {
  const begin = performance.now();
  const result = await work();
  return [result, performance.now() - begin];
}

/** Return the largest difference of two results; null if they cannot be compared. @param {Tensors} a @param {Tensors} b */
function difference(a, b) {
  let largest = -1;
  for (const [name, { data, type }] of Object.entries(a)) {
    const other = b[name]?.data;
    if (!other || !/^(float32|float64|u?int(8|16|32)|bool)$/.test(type) || other.length !== data.length) continue;
    for (let i = 0; i < data.length; i++) {
      const [x, y] = [Number(data[i]), Number(other[i])];
      if (!(Number.isNaN(x) && Number.isNaN(y)) && x !== y) largest = Math.max(largest, Math.abs(x - y) || Infinity);
      else largest = Math.max(largest, 0);
    }
  }
  return largest < 0 ? null : largest;
}

/**
 * @param {{title: string, first: number, times: number[]}[]} sides
 * @param {number | null} most
 * @param {import('../adapter.js').Adapter | null} adapter
 */
function view(sides, most, adapter) {
  const [gpu, cpu] = sides.map(({ times }) => median(times));
  const ratio = gpu < cpu ? `The GPU is ${(cpu / gpu).toPrecision(2)} times as fast here.` : `The CPU is ${(gpu / cpu).toPrecision(2)} times as fast here.`;
  const rows = sides.map(({ title, first, times }) => h('tr', {}, h('th', { scope: 'row' }, title === 'GPU' ? 'GPU, WebGPU' : 'CPU, NumPy in WebAssembly'),
    h('td', { class: 'number' }, formatTime(median(times))), h('td', { class: 'number' }, formatTime(Math.min(...times))),
    h('td', { class: 'number' }, formatTime(Math.max(...times))), h('td', { class: 'number' }, formatTime(first)), h('td', { class: 'number' }, times.length)));
  return h('div', {},
    !adapter && h('p', { class: 'notice' }, 'There is no GPU for this page: both rows are NumPy.'),
    adapter && isEmulated(adapter) && h('p', { class: 'notice' }, 'This GPU is emulated on the CPU: it says nothing about how fast a real one is.'),
    h('p', {}, h('b', {}, ratio), most === null ? '' : ` Results differ by at most ${formatValue(most)}.`),
    barList(sides.map(({ title, times }) => ({ label: title, value: median(times), text: formatTime(median(times)), kind: title === 'GPU' ? 'peak' : 'host' }))),
    table('GPU and CPU', ['Runs on', 'Median', 'Fastest', 'Slowest', 'First run', 'Runs'], rows),
    h('p', { class: 'note' }, `Round trips as a page sees them, from input array to output array, alternating on the same input; ${formatCount(1, 'thread')} of `
      + 'the CPU. NumPy is the runtime\'s own way without a GPU, not the fastest there is for CPUs. '
      + 'Other tabs and the power plan matter: run it again before you believe it.'));
}
