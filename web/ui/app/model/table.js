// @ts-check
import { h } from '../../dom.js';

/** @type {Record<string, string>} */
const BADGES = { gpu: 'GPU', host: 'NumPy', none: 'no cost' };

/** Return a table that scrolls separately, also by keyboard. @param {string} title @param {string[]} columns @param {HTMLElement[]} rows */
export function table(title, columns, rows) {
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': title },
    h('table', {},
      h('thead', {}, h('tr', {}, ...columns.map((column) => h('th', { scope: 'col' }, column)))),
      h('tbody', {}, ...rows)));
}

/** Return a badge for a node's placement. @param {string} placement */
export function badge(placement) {
  return h('span', { class: 'badge', data: { placement } }, BADGES[placement] ?? placement);
}
