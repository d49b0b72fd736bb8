// @ts-check
import { Tensor } from '../../../pyruntime.js';
import { h, saveAs } from '../../dom.js';
import { pictureLayout } from '../../draw/luminance.js';
import { formatCount, formatShape, formatValue } from '../format.js';
import { svg } from '../svg.js';
import { writeNpz } from './npy.js';
import { table } from './table.js';

const VALUES_SHOWN = 200;
const COLUMNS = 8;
const BARS = 64;
const POINTS = 2000;
const BINS = 48;
const [WIDTH, HEIGHT] = [640, 180];

/** Return a value as an array of numbers, if it is one. @param {Tensor} tensor @returns {ArrayLike<number> | null} */
function numbers({ type, data }) {
  if (Array.isArray(data) || /^(string|bfloat16|float8|float4|u?int[24]$)/.test(type)) return null;
  if (type === 'float16' && data instanceof Uint16Array) return null; // bits
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) return Array.from(data, Number);
  return /** @type {ArrayLike<number>} */ (data);
}

/** Return the outputs as numbers, pictures or charts, with a download of all. @param {Record<string, any>} outputs */
export function outputsView(outputs) {
  const cards = Object.entries(outputs).map(([name, value]) => (value instanceof Tensor ? card(name, value) : other(name, value)));
  const save = h('button', { type: 'button', class: 'quiet small', on: { click: () => saveNpz(outputs, save) } }, 'Save as .npz');
  return h('section', { class: 'outputs', role: 'region', 'aria-label': 'Results' },
    h('div', { class: 'row-head' }, h('h4', {}, 'Results'), save), ...cards);
}

/** @param {Record<string, Tensor>} outputs @param {HTMLElement} button */
function saveNpz(outputs, button) {
  const { blob, left } = writeNpz(outputs);
  saveAs(blob, 'outputs.npz');
  if (left.length) button.insertAdjacentText('afterend', `NumPy has no type for ${left.join(', ')}.`);
}

/** @param {string} name @param {any} value */
function other(name, value) {
  const text = value instanceof Map ? [...value].slice(0, VALUES_SHOWN).map(([key, item]) => `${key}: ${item}`).join('\n')
    : Array.isArray(value) ? value.map((item) => `${item?.type} ${formatShape(item?.dims ?? [])}`).join('\n') : String(value);
  return h('div', { class: 'output' }, h('p', {}, h('b', {}, name)), h('pre', { tabindex: 0 }, text));
}

/** @param {string} name @param {Tensor} tensor */
function card(name, tensor) {
  const values = numbers(tensor);
  /** @type {Record<string, () => Node>} */
  const ways = { numbers: () => numberTable(name, tensor) };
  const layout = values && pictureLayout(tensor.dims);
  if (layout && tensor.size >= 64) ways.image = () => pictureOf(name, tensor, layout.layout);
  if (values && tensor.size > 1) ways.chart = () => chart(name, values);
  const place = h('div', { class: 'output-view' });
  const buttons = Object.keys(ways).map((way) => h('button', { type: 'button', class: 'quiet small', 'aria-pressed': 'false', on: {
    click: () => show(way) } }, way[0].toUpperCase() + way.slice(1)));
  const show = (/** @type {string} */ way) => {
    buttons.forEach((button, i) => button.setAttribute('aria-pressed', String(Object.keys(ways)[i] === way)));
    place.replaceChildren(ways[way]());
  };
  show(ways.image && tensor.size >= 3 * 16 * 16 ? 'image' : ways.chart && tensor.size > BARS ? 'chart' : 'numbers');
  return h('div', { class: 'output' },
    h('div', { class: 'row-head' }, h('p', {}, h('b', {}, name), ` ${tensor.type} ${formatShape(tensor.dims)}`,
      values ? h('span', { class: 'soft' }, ` ${range(values)}`) : null),
    h('div', { class: 'ways', role: 'group', 'aria-label': `Show ${name} as` }, ...buttons)),
    place);
}

/** @param {ArrayLike<number>} values */
function range(values) {
  let [low, high, nans] = [Infinity, -Infinity, 0];
  for (let i = 0; i < values.length; i++) {
    if (Number.isNaN(values[i])) nans += 1;
    if (values[i] < low) low = values[i];
    if (values[i] > high) high = values[i];
  }
  const span = low <= high ? `${formatValue(low)} to ${formatValue(high)}` : '';
  return nans ? `${span} ${nans} NaN`.trim() : span;
}

/** @param {string} name @param {Tensor} tensor */
function numberTable(name, { data, dims }) {
  const last = dims[dims.length - 1] || 1;
  const columns = Math.min(last, COLUMNS);
  const shown = Math.min(data.length, VALUES_SHOWN);
  const rows = [];
  for (let at = 0; at < shown; at += columns) {
    const place = [];
    for (let axis = dims.length - 1, rest = at; axis >= 0; axis--) {
      place.unshift(rest % dims[axis]);
      rest = Math.floor(rest / dims[axis]);
    }
    const cells = [...data.slice(at, Math.min(at + columns, shown))].map((value) => h('td', { class: 'number' }, formatValue(/** @type {any} */ (value))));
    rows.push(h('tr', {}, h('th', { scope: 'row' }, `[${place.join(', ')}]`), ...cells));
  }
  const more = data.length > shown ? h('p', { class: 'note' }, `The first ${shown} of ${formatCount(data.length, 'value')}.`) : null;
  const heads = ['From', ...Array.from({ length: columns }, (_, i) => `+${i}`)];
  return h('div', {}, table(`Values of ${name}`, heads, rows), more);
}

/** @param {string} name @param {Tensor} tensor @param {'NCHW' | 'NHWC'} layout */
function pictureOf(name, tensor, layout) {
  const [, ...rest] = tensor.dims;
  const first = tensor.dims[0] === 1 ? tensor : new Tensor(tensor.type, /** @type {any} */ (tensor.data).slice(0, tensor.size / tensor.dims[0]), [1, ...rest]);
  const values = /** @type {ArrayLike<number>} */ (numbers(first));
  const [low, high] = extent(values);
  const plain = tensor.type === 'uint8' ? { mean: 1, bias: 0 } : low >= 0 && high <= 1.001 ? { mean: 255, bias: 0 }
    : { mean: 255 / ((high - low) || 1), bias: low };
  const image = new Tensor('float32', Float32Array.from(values), first.dims).toImageData({ tensorLayout: layout, norm: plain });
  const canvas = h('canvas', { width: image.width, height: image.height, role: 'img', 'aria-label': `${name} as a picture, ${image.width} by ${image.height}` });
  /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d')).putImageData(image, 0, 0);
  canvas.classList.toggle('pixels', image.width < 160);
  const scaled = plain.bias || (plain.mean !== 255 && plain.mean !== 1);
  return h('figure', {}, canvas, h('figcaption', { class: 'note' },
    `${scaled ? `Black is ${formatValue(low)}, white ${formatValue(high)}.` : ''}${tensor.dims[0] > 1 ? ` The first of ${tensor.dims[0]}.` : ''}`));
}

/** Return bars for few values, a line for some, a histogram for many. @param {string} name @param {ArrayLike<number>} values */
function chart(name, values) {
  if (values.length <= BARS) return bars(name, values, 'Values in order');
  if (values.length <= POINTS) return line(name, values);
  return histogram(name, values);
}

/** @param {string} label @param {...Node} parts */
function frame(label, ...parts) {
  return svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT + 18}`, role: 'img', 'aria-label': label, class: 'chart' }, ...parts);
}

/** Return the smallest and the largest of finite values, extended to a given range. @param {ArrayLike<number>} values */
function extent(values, [low, high] = [Infinity, -Infinity]) {
  for (let i = 0; i < values.length; i++) {
    if (Number.isFinite(values[i])) [low, high] = [Math.min(low, values[i]), Math.max(high, values[i])];
  }
  return [low, high];
}

/** Return the ends of a chart's axis: finite, different, and including zero. @param {ArrayLike<number>} values @returns {[number, number]} */
function span(values) {
  const [low, high] = extent(values, [0, 0]);
  return [low, high === low ? low + 1 : high];
}

/** @param {string} name @param {ArrayLike<number>} values @param {string} caption @param {string} [axis] */
function bars(name, values, caption, axis) {
  const [low, high] = span(values);
  const y = (/** @type {number} */ value) => HEIGHT * (1 - (value - low) / (high - low));
  const step = WIDTH / values.length;
  const rects = Array.from(values, (value, i) => (Number.isFinite(value) ? svg('rect', { class: 'chart-bar',
    x: i * step + step * 0.1, width: step * 0.8, y: Math.min(y(value), y(0)), height: Math.max(0.5, Math.abs(y(value) - y(0))) },
  svg('title', {}, `${i}: ${formatValue(value)}`)) : null));
  return frame(`${caption} of ${name}: ${formatValue(low)} to ${formatValue(high)}`, ...rects.filter((rect) => rect !== null),
    svg('text', { x: 0, y: HEIGHT + 14 }, axis ?? `${formatValue(low)} to ${formatValue(high)}`));
}

/** @param {string} name @param {ArrayLike<number>} values */
function line(name, values) {
  const [low, high] = span(values);
  const points = Array.from(values, (value, i) => (
    `${(i / (values.length - 1) * WIDTH).toFixed(1)},${(HEIGHT * (1 - ((Number.isFinite(value) ? value : 0) - low) / (high - low))).toFixed(1)}`));
  return frame(`Values of ${name} in order: ${formatValue(low)} to ${formatValue(high)}`, svg('polyline', { points: points.join(' ') }),
    svg('text', { x: 0, y: HEIGHT + 14 }, `${formatCount(values.length, 'value')} in order, ${formatValue(low)} to ${formatValue(high)}`));
}

/** @param {string} name @param {ArrayLike<number>} values */
function histogram(name, values) {
  const [low, high] = extent(values);
  if (!(low < high)) return h('p', { class: 'note' }, `All ${formatCount(values.length, 'value')} are ${formatValue(values[0])}.`);
  const counts = new Array(BINS).fill(0);
  for (let i = 0; i < values.length; i++) {
    if (Number.isFinite(values[i])) counts[Math.min(BINS - 1, Math.floor((values[i] - low) / (high - low) * BINS))] += 1;
  }
  return bars(name, counts, 'How often which value', `How often which of ${formatCount(values.length, 'value')}: from ${formatValue(low)} on the left to ${formatValue(high)}`);
}
