// @ts-check
import { COLORS, barList, stack, swatch } from '../charts.js';
import { h } from '../../dom.js';
import { formatBytes } from '../format.js';
import { svg } from '../svg.js';
import { table } from './table.js';

/** @typedef {import('../../../pyruntime.js').Explanation['memory']} Memory */

const [WIDTH, HEIGHT, FOOT, MOST] = [720, 240, 22, 3000];

/**
 * Return the GPU memory of the model, its activation plan as bars on one scale, and each tensor over its lifetime in steps.
 * @param {Memory} memory
 */
export function memoryView(memory) {
  const { peak, lower_bound: bound, total_without_reuse: total, weights, tensors } = memory;
  const planned = basesOf(tensors).top;
  const parts = [{ title: `Weights: ${formatBytes(weights)}`, value: weights, color: 0 }, { title: `Activations: ${formatBytes(peak)}`, value: peak, color: 1 }];
  return h('figure', { class: 'memory' },
    h('figcaption', {}, h('b', {}, `${formatBytes(weights + peak)} on the GPU`), ': ', swatch(0), `${formatBytes(weights)} of weights, `, swatch(1), `${formatBytes(peak)} for activations`),
    weights && peak ? stack(parts, `Weights ${formatBytes(weights)}, activations ${formatBytes(peak)}`) : null,
    h('p', { class: 'note' }, 'Activations share memory: one is overwritten when no later operator reads it.'),
    barList([{ label: 'Without reuse', value: total, text: formatBytes(total) }, { label: 'Planned peak', value: planned, text: formatBytes(planned), kind: 'peak' },
      { label: 'Lower bound', value: bound, text: formatBytes(bound) }]),
    ...(tensors.length > 1 ? [chart(memory), h('p', { class: 'note' }, 'Each tensor of a run: when it is kept, from left to right, and at which address, from bottom to top; dashed: the lower bound.'), asTable(tensors)] : []));
}

/** Where each arena begins if they are stacked, and where the last ends. @param {Memory['tensors']} tensors */
function basesOf(tensors) {
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
  return { bases, top };
}

/** @param {Memory} memory */
function chart({ lower_bound: bound, tensors }) {
  const { bases, top } = basesOf(tensors);
  const steps = Math.max(...tensors.map(({ last }) => last + 1));
  const x = (/** @type {number} */ step) => step / steps * WIDTH;
  const y = (/** @type {number} */ at) => HEIGHT * (1 - at / Math.max(top, 1));
  const rects = tensors.slice(0, MOST).map(({ names, bytes, first, last, arena, offset }, i) => {
    const at = (bases.get(arena) ?? 0) + offset;
    return svg('rect', { x: x(first), width: Math.max(1, x(last + 1) - x(first)), y: y(at + bytes), height: Math.max(0.5, y(at) - y(at + bytes)),
      'data-color': i % (COLORS - 1) }, svg('title', {}, `${names.join(', ')}: ${formatBytes(bytes)}, steps ${first} to ${last}`));
  });
  const limit = svg('line', { x1: 0, x2: WIDTH, y1: y(bound), y2: y(bound) });
  return svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT + FOOT}`, role: 'img', class: 'chart memory-chart',
    'aria-label': `Memory over ${steps} steps: peak ${formatBytes(top)}, lower bound ${formatBytes(bound)}, dashed. The table below has the numbers.` },
  ...rects, limit, svg('text', { x: 0, y: HEIGHT + FOOT - 4 }, 'first step'),
  svg('text', { x: WIDTH, y: HEIGHT + FOOT - 4, 'text-anchor': 'end' }, `step ${steps}`));
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
