// @ts-check
import { h } from '../../dom.js';
import { formatBytes } from '../format.js';
import { svg } from '../svg.js';
import { table } from './table.js';

/** @typedef {import('../../../pyruntime.js').Explanation['memory']} Memory */

const [WIDTH, HEIGHT, MOST] = [720, 240, 3000];
const HUES = [210, 150, 30, 280, 340, 95, 185, 55];

/** Three bars on one scale, then each tensor over the steps that it lives, at its place. @param {Memory} memory */
export function memoryView(memory) {
  const { peak, lower_bound: bound, total_without_reuse: total, weights, tensors } = memory;
  const scale = Math.max(peak, bound, total, 1);
  const bar = (/** @type {string} */ label, /** @type {number} */ bytes, /** @type {string} */ kind) => {
    const fill = h('span', { class: 'memory-bar', data: { kind } });
    fill.style.setProperty('--part', String(bytes / scale));
    return h('div', {}, h('dt', {}, label), h('dd', {}, h('span', { class: 'memory-track' }, fill), formatBytes(bytes)));
  };
  return h('figure', { class: 'memory' },
    h('figcaption', {}, 'GPU memory for activations', weights ? h('span', {}, `, in addition to ${formatBytes(weights)} of weights`) : null),
    h('dl', {}, bar('Without reuse', total, 'total'), bar('Planned peak', peak, 'peak'), bar('Lower bound', bound, 'bound')),
    ...(tensors.length > 1 ? [chart(memory), asTable(tensors)] : []));
}

/** @param {Memory} memory */
function chart({ peak, lower_bound: bound, tensors }) {
  /** @type {Map<number, number>} */
  const sizes = new Map();
  for (const { arena, offset, bytes } of tensors) sizes.set(arena, Math.max(sizes.get(arena) ?? 0, offset + bytes));
  /** @type {Map<number, number>} */
  const bases = new Map();
  let top = 0;
  for (const arena of [...sizes.keys()].sort((a, b) => a - b)) {
    bases.set(arena, top);
    top += sizes.get(arena) ?? 0;
  }
  const steps = Math.max(...tensors.map(({ last }) => last + 1));
  const x = (/** @type {number} */ step) => step / steps * WIDTH;
  const y = (/** @type {number} */ at) => HEIGHT * (1 - at / Math.max(top, 1));
  const rects = tensors.slice(0, MOST).map(({ names, bytes, first, last, arena, offset }, i) => {
    const at = (bases.get(arena) ?? 0) + offset;
    return svg('rect', { x: x(first), width: Math.max(1, x(last + 1) - x(first)), y: y(at + bytes), height: Math.max(0.5, y(at) - y(at + bytes)),
      fill: `hsl(${HUES[i % HUES.length]} 55% 55%)` }, svg('title', {}, `${names.join(', ')}: ${formatBytes(bytes)}, steps ${first} to ${last}`));
  });
  const limit = svg('line', { x1: 0, x2: WIDTH, y1: y(bound), y2: y(bound) });
  return svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT + 18}`, role: 'img', class: 'chart memory-chart',
    'aria-label': `Memory over ${steps} steps: peak ${formatBytes(peak)}, lower bound ${formatBytes(bound)}, dashed. The table below has the numbers.` },
  ...rects, limit, svg('text', { x: 0, y: HEIGHT + 14 }, 'first step'), svg('text', { x: WIDTH, y: HEIGHT + 14, 'text-anchor': 'end' }, `step ${steps}`));
}

/** @param {Memory['tensors']} tensors */
function asTable(tensors) {
  const details = h('details', {}, h('summary', {}, `Every tensor (${tensors.length})`));
  details.addEventListener('toggle', () => {
    if (details.children.length > 1) return;
    details.append(table('Tensors', ['Tensor', 'Size', 'From byte', 'Steps'], tensors.slice(0, MOST).map(({ names, bytes, offset, first, last }) => (
      h('tr', {}, h('th', { scope: 'row' }, names.join(', ')), h('td', { class: 'number' }, formatBytes(bytes)),
        h('td', { class: 'number' }, offset.toLocaleString('en')), h('td', { class: 'number' }, `${first} to ${last}`))))));
  });
  return details;
}
