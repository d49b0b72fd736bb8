// @ts-check
/** Charts of a report. Each says its figures as text too: next to a bar, in an image's label, or in a table. */

import { h } from '../dom.js';
import { formatTime } from './format.js';
import { svg } from './svg.js';

const [WIDTH, HEIGHT, FEWEST_COLUMNS] = [720, 120, 20];

/** Colors of charts, in `look.css`; the last one is of what has no other. */
export const COLORS = 9;

/**
 * Bars on one scale, each with its label and its figure.
 * @param {{label: string, value: number, text: string, kind?: string}[]} rows `kind` names a color
 */
export function barList(rows) {
  const scale = Math.max(...rows.map(({ value }) => value)) || 1;
  return h('dl', { class: 'bar-list' }, ...rows.map(({ label, value, text, kind = 'plain' }) => (
    h('div', {}, h('dt', {}, label), h('dd', {}, bar(value / scale, kind), text)))));
}

/** One bar. @param {number} part from 0 to 1 @param {string} kind */
export function bar(part, kind) {
  const fill = h('span', { class: 'memory-bar', data: { kind } });
  fill.style.setProperty('--part', String(part));
  return h('span', { class: 'memory-track', 'aria-hidden': 'true' }, fill);
}

/**
 * The parts of a whole, from left to right; what is `aria-label` says them in words.
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

/** The square that says which color of a chart is meant. @param {number} color */
export function swatch(color) {
  return h('span', { class: 'swatch', 'aria-hidden': 'true', data: { color } });
}

/** Milliseconds of runs, a column each, and their median as a line. @param {readonly number[]} times @param {number} middle */
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
