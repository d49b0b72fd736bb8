// @ts-check
/** Charts of a report. Every figure also exists as text: next to a bar, in an image's label, or in a table. */

import { h } from '../dom.js';
import { formatTime } from './format.js';
import { svg } from './svg.js';

const [WIDTH, HEIGHT, FEWEST_COLUMNS] = [720, 120, 20];

/** Number of chart colors in `look.css`; the last one is for everything else. */
export const COLORS = 9;

/**
 * Return bars on one scale, each with its label and its figure.
 * @param {{label: string, value: number, text: string, kind?: string}[]} rows `kind` names a color
 */
export function barList(rows) {
  const scale = Math.max(...rows.map(({ value }) => value)) || 1;
  return h('dl', { class: 'bar-list' }, ...rows.map(({ label, value, text, kind = 'plain' }) => (
    h('div', {}, h('dt', {}, label), h('dd', {}, bar(value / scale, kind), text)))));
}

/** Return one bar. @param {number} part from 0 to 1 @param {string} kind */
export function bar(part, kind) {
  const fill = h('span', { class: 'memory-bar', data: { kind } });
  fill.style.setProperty('--part', String(part));
  return h('span', { class: 'memory-track', 'aria-hidden': 'true' }, fill);
}

/**
 * Return the parts of a whole as a horizontal stack; `label` describes them for screen readers.
 * @param {{title: string, value: number, color: number}[]} parts
 * @param {string} label
 */
export function stack(parts, label) {
  return h('div', { class: 'stack', role: 'img', 'aria-label': label }, ...parts.map(({ title, value, color }) => {
    const piece = h('span', { title, data: { color } });
    piece.style.setProperty('--part', String(value));
    return piece;
  }));
}

/** Return a square in a chart's color, for its legend. @param {number} color */
export function swatch(color) {
  return h('span', { class: 'swatch', 'aria-hidden': 'true', data: { color } });
}

/** Return a column chart of run times in milliseconds, with their median as a line. @param {readonly number[]} times @param {number} middle */
export function columns(times, middle) {
  const top = Math.max(...times) || 1;
  const y = (/** @type {number} */ ms) => HEIGHT * (1 - ms / top);
  const step = WIDTH / Math.max(times.length, FEWEST_COLUMNS);
  const rects = times.map((ms, i) => svg('rect', { class: 'chart-bar', x: i * step, width: step * 0.8, y: y(ms), height: HEIGHT - y(ms) },
    svg('title', {}, `Run ${i + 2}: ${formatTime(ms)}`)));
  const range = `${times.length} runs after the first, from ${formatTime(Math.min(...times))} to ${formatTime(top)}`;
  return h('figure', {}, svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', class: 'chart', 'aria-label': `${range}, median ${formatTime(middle)}` }, ...rects,
    svg('line', { class: 'chart-line', x1: 0, x2: WIDTH, y1: y(middle), y2: y(middle) })),
  h('figcaption', { class: 'note' }, `${range}; dashed: the median.`));
}
