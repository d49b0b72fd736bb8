// @ts-check
/** Outputs, as graphics and as text. */

import { h } from '../dom.js';
import { pictureLayout } from '../draw/luminance.js';

/** @typedef {import('../../pyruntime.js').Tensor} Tensor */

/** Number of classes above which only the most likely are shown. */
const ALL_BARS = 12;
const BEST_BARS = 5;
const SHOWN = 64;

/** @param {number} value */
function short(value) {
  if (!Number.isFinite(value)) return String(value);
  return Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(+value.toFixed(4));
}

/**
 * Return scores of classes as bars, in the model's order, or the highest of many.
 * @param {number[]} values
 * @param {readonly string[]} labels
 */
function bars(values, labels) {
  const total = values.reduce((sum, value) => sum + value, 0);
  const isShare = values.every((value) => value >= 0) && Math.abs(total - 1) < 1e-2;
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const words = (/** @type {number} */ value) => (isShare ? `${(value * 100).toFixed(1)}%` : short(value));
  const part = (/** @type {number} */ value) => (isShare ? value : (value - least) / (most - least || 1));
  const ranked = values.map((value, i) => ({ value, name: labels[i] ?? String(i) })).sort((a, b) => b.value - a.value);
  const [best] = ranked;
  const shown = values.length <= ALL_BARS ? values.map((value, i) => ({ value, name: labels[i] ?? String(i) }))
    : ranked.slice(0, BEST_BARS);
  const isLong = shown.some(({ name }) => name.length > 8);
  const list = h('ol', { part: 'bars', class: isLong ? 'long' : undefined });
  for (const { value, name } of shown) {
    const fill = h('span', { class: 'fill' });
    fill.style.setProperty('--part', String(part(value)));
    const track = h('span', { class: 'track', 'aria-hidden': 'true' }, fill);
    const cells = [h('span', { class: 'name' }, name), track, h('span', { class: 'value' }, words(value))];
    if (isLong) cells.splice(1, 2, cells[2], cells[1]);
    list.append(h('li', { part: 'bar', class: value === best.value ? 'best' : undefined }, ...cells));
  }
  return { element: list, words: `${best.name}, ${words(best.value)}` };
}

/** Return a picture, if the tensor is one. @param {Tensor} tensor */
function picture(tensor) {
  const { dims, type } = tensor;
  if (dims[0] !== 1 || !['float32', 'float16', 'float64', 'uint8'].includes(type)) return null;
  const layout = pictureLayout(dims)?.layout;
  const [height, width] = layout === 'NHWC' ? [dims[1], dims[2]] : [dims[2], dims[3]];
  if (!layout || height < 8 || width < 8) return null;
  const data = /** @type {ArrayLike<number>} */ (tensor.data);
  let most = 0;
  for (let i = 0; i < data.length; i++) if (data[i] > most) most = data[i];
  const image = tensor.toImageData({ tensorLayout: layout, norm: { mean: most > 2 ? 1 : 255 } });
  const canvas = h('canvas', {
    part: 'picture', role: 'img', 'aria-label': 'Resulting picture', class: width < 96 ? 'small' : undefined });
  Object.assign(canvas, { width, height });
  canvas.getContext('2d')?.putImageData(image, 0, 0);
  return { element: canvas, words: `A picture of ${width} by ${height}` };
}

/** @param {string} name @param {Tensor} tensor */
function numbers(name, tensor) {
  const data = /** @type {ArrayLike<number | bigint | string>} */ (tensor.data);
  const some = Array.from({ length: Math.min(SHOWN, data.length) }, (_, i) => data[i]);
  const text = some.map((value) => (typeof value === 'number' ? short(value) : String(value))).join(', ');
  const more = data.length > SHOWN ? `, ... (${data.length})` : '';
  return { element: h('pre', { part: 'numbers' }, text + more), words: `${name}: ${some.slice(0, 5).join(', ')}` };
}

/**
 * Return an element that shows `outputs`, and a sentence with the same content.
 * @param {Record<string, Tensor>} outputs
 * @param {readonly string[]} labels
 * @returns {{elements: HTMLElement[], words: string}}
 */
export function show(outputs, labels) {
  const elements = [];
  const sentences = [];
  const entries = Object.entries(outputs);
  for (const [name, tensor] of entries) {
    if (!('dims' in (tensor ?? {}))) continue; // a sequence or map, which only the event has
    const rows = tensor.dims.slice(0, -1).every((dim) => dim === 1) ? tensor.size : 0;
    const isFloat = tensor.type.startsWith('float');
    const classes = isFloat && rows > 1 && (labels.length ? rows === labels.length : rows <= 2048);
    const shown = classes ? bars([.../** @type {Float32Array} */ (tensor.data)].map(Number), labels)
      : picture(tensor) ?? numbers(name, tensor);
    if (entries.length > 1) elements.push(h('p', { class: 'soft' }, `${name}: ${tensor.type} [${tensor.dims.join(', ')}]`));
    elements.push(shown.element);
    sentences.push(shown.words);
  }
  return { elements, words: sentences.join('. ') };
}
