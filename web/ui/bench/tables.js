// @ts-check
/** The result as tables. */
import { h } from '../dom.js';
import { formatBytes, formatTime } from '../app/format.js';
import { table } from '../app/model/table.js';
import { nameOf } from './engines.js';
import { bandwidthText, productText, timeText } from './texts.js';

/** @typedef {import('./measurement.js').Result} Result */

/** Limits that decide which kernels and models fit. */
const LIMITS = /** @type {[string, string, boolean][]} */ ([
  ['maxStorageBufferBindingSize', 'Largest binding', true], ['maxBufferSize', 'Largest buffer', true],
  ['maxComputeWorkgroupStorageSize', 'Workgroup memory', true], ['maxComputeInvocationsPerWorkgroup', 'Invocations in a workgroup', false],
  ['maxStorageBuffersPerShaderStage', 'Storage buffers of a kernel', false],
]);

/** Format a limit, which is a power of two or four bytes less: '16 KiB', '2 GiB'. @param {number} bytes */
function limitText(bytes) {
  const power = Math.min(3, Math.floor(Math.log2(bytes + 4) / 10));
  return `${Math.round(bytes / 1024 ** power)} ${['B', 'KiB', 'MiB', 'GiB'][power]}`;
}

/** @param {string} name @param {string} value @param {string} [note] shown smaller below the name */
function row(name, value, note) {
  return h('tr', {}, h('th', { scope: 'row' }, name, note ? h('small', {}, note) : null), h('td', { class: 'number' }, value));
}

/** Return the browser's description of the GPU. @param {Pick<Result, 'limits' | 'features'>} described */
export function adapterTable({ limits, features }) {
  const rows = LIMITS.filter(([name]) => name in limits).map(([name, about, isBytes]) => (
    row(about, isBytes ? limitText(limits[name]) : String(limits[name]))));
  const has = (/** @type {string} */ name) => (features.includes(name) ? 'yes' : 'no');
  const named = [['subgroups', 'Subgroups'], ['shader-f16', 'float16 in shaders'], ['timestamp-query', 'Timestamps']];
  return table('Limits and features', ['Limit or feature', 'Here'], [...rows, ...named.map(([name, about]) => row(about, has(name)))]);
}

/** @param {Result} result */
export function ratesTable({ device, products, engines }) {
  const rows = device ? [
    row('Memory, read and written', bandwidthText(device), `${formatBytes(device.bandwidth_bytes)} copied`),
    row('A dispatch', timeText(device.dispatch_us / 1000), 'many in one pass'),
    row('A result read back', timeText(device.readback_ms), 'four bytes, median'),
  ] : [];
  for (const name of Object.keys(engines)) {
    const product = products[name];
    if (!product) continue;
    rows.push(row(`Products by ${nameOf({ name })}`, productText(product),
      'error' in product ? product.error : `${product.side} by ${product.side}, float32`));
  }
  return table('Microbenchmarks', ['What', 'Figure'], rows);
}

/** @param {import('./comparison.js').Timed | {error: string} | undefined} found */
function spread(found) {
  if (!found) return '–';
  if ('error' in found) return h('span', { title: found.error }, 'does not run');
  const [median, low, high] = [found.median_ms, found.p10_ms, found.p90_ms].map((ms) => formatTime(ms).replace(' ', '\u00a0'));
  return h('span', {}, median, h('small', {}, found.runs_ms.length > 1 ? `${low} to ${high}` : 'one run'));
}

/** @param {number | null} most */
function differenceText(most) {
  if (most === null) return '–';
  return most && most < 1e-3 ? most.toExponential(1) : String(Number(most.toPrecision(2)));
}

/** @param {Result} result */
export function modelsTable({ models, engines }) {
  const hasPeer = 'onnxruntime_web' in engines;
  const rows = models.map(({ title, about, engines: times, ratio, max_difference: most }) => h('tr', {},
    h('th', { scope: 'row' }, h('b', {}, title), h('small', {}, about)),
    h('td', { class: 'number' }, spread(times.pyruntime)),
    ...hasPeer ? [h('td', { class: 'number' }, spread(times.onnxruntime_web)),
      h('td', { class: 'number' }, ratio === null ? '–' : h('b', {}, ratio.toPrecision(3))),
      h('td', { class: 'number' }, differenceText(most))] : []));
  return table('Models', ['Model', 'pyruntime', ...hasPeer ? ['onnxruntime-web', 'Ratio', 'Difference'] : []], rows);
}
