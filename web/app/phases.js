// @ts-check
import { h } from './dom.js';
import { formatBytes, formatTime } from './format.js';

/** @typedef {import('../pyruntime.js').ProgressEvent} ProgressEvent */

/** What the runtime's phases are called here, in the order in which they are shown. @type {Record<string, string>} */
const NAMES = {
  pyodide: 'Python, NumPy',
  wheel: 'pyruntime',
  adapter: 'GPU adapter',
  import: 'Import',
  model: 'Model',
  plan: 'Plan',
  shaders: 'Shaders',
  run: 'First inference',
};

/** A list of what is being loaded: each phase with its bytes and its time, growing as the phases report. */
export class PhaseList {
  /**
   * @param {HTMLElement} list an `ol`
   * @param {string[]} [expected] phases to show from the beginning
   */
  constructor(list, expected = []) {
    this.list = list;
    /** @type {Map<string, {row: HTMLElement, detail: HTMLElement, bytes: number}>} */
    this.rows = new Map();
    for (const phase of expected) this.#add(phase).row.dataset.state = 'waiting';
  }

  /** @param {ProgressEvent} event */
  report({ phase, status, ms, loaded, total }) {
    const entry = this.rows.get(phase) ?? this.#add(phase);
    if (loaded !== undefined) entry.bytes = loaded;
    if (status !== 'end') entry.row.dataset.state = 'busy';
    const bytes = entry.bytes ? formatBytes(entry.bytes) : '';
    if (status === 'end') {
      entry.row.dataset.state = 'done';
      entry.row.style.setProperty('--part', '1');
      entry.detail.textContent = [bytes, ms === undefined ? '' : formatTime(ms)].filter(Boolean).join(', ');
    } else if (loaded !== undefined) {
      const known = total !== undefined && total > 0;
      if (known) entry.row.style.setProperty('--part', String(Math.min(1, loaded / total)));
      entry.detail.textContent = known ? `${bytes} of ${formatBytes(total)}` : bytes;
    }
  }

  /** Marks what was under way as stopped. */
  stop() {
    for (const { row } of this.rows.values()) {
      if (row.dataset.state === 'busy') row.dataset.state = 'stopped';
    }
  }

  /** @param {string} phase */
  #add(phase) {
    const detail = h('span', { class: 'phase-detail' });
    const row = h('li', { class: 'phase', data: { state: 'busy', phase } }, h('span', {}, NAMES[phase] ?? phase), detail);
    const entry = { row, detail, bytes: 0 };
    this.rows.set(phase, entry);
    const order = Object.keys(NAMES);
    const rank = (/** @type {string} */ name) => (order.includes(name) ? order.indexOf(name) : order.length);
    const next = [...this.list.children].find((other) => (
      rank(/** @type {HTMLElement} */ (other).dataset.phase ?? '') > rank(phase)));
    this.list.insertBefore(row, next ?? null);
    return entry;
  }
}
