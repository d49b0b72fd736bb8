// @ts-check
import { h } from '../dom.js';
import { formatBytes, formatTime } from './format.js';

/** @typedef {import('../../pyruntime.js').ProgressEvent} ProgressEvent */

/**
 * The lines of the list in order. A line covers several of the runtime's phases and ends with the last.
 * @type {{title: string, phases: string[]}[]}
 */
const LINES = [
  { title: 'Python, NumPy', phases: ['pyodide'] },
  { title: 'pyruntime', phases: ['wheel', 'import'] },
  { title: 'GPU adapter', phases: ['adapter'] },
  { title: 'Model', phases: ['model', 'parse'] },
  { title: 'Shaders', phases: ['shaders'] },
  { title: 'First inference', phases: ['run'] },
];

class Line {
  /** @param {string} title @param {string} last the phase that ends the line */
  constructor(title, last) {
    this.last = last;
    this.bytes = 0;
    this.ms = 0;
    this.detail = h('span', { class: 'phase-detail' });
    this.row = h('li', { class: 'phase', data: { state: 'waiting' } }, h('span', {}, title), this.detail);
  }

  /** @param {ProgressEvent} event */
  report({ phase, status, ms = 0, loaded, total }) {
    this.ms += ms;
    if (loaded !== undefined) this.bytes = loaded;
    if (status === 'end' && phase === this.last) {
      this.end();
      return;
    }
    this.row.dataset.state = 'busy';
    if (loaded === undefined) return;
    const known = total !== undefined && total > 0;
    if (known) this.row.style.setProperty('--part', String(Math.min(1, loaded / total)));
    this.detail.textContent = known ? `${formatBytes(loaded)} of ${formatBytes(total)}` : formatBytes(loaded);
  }

  /** Show the line as done, with its bytes and its time. */
  end() {
    this.row.dataset.state = 'done';
    this.detail.textContent = [this.bytes ? formatBytes(this.bytes) : '', formatTime(this.ms)].filter(Boolean).join(', ');
  }
}

/** A list of loading phases, each line with its bytes and its time. */
export class PhaseList {
  /**
   * @param {HTMLElement} list an `ol`
   * @param {string[]} [announced] titles of the lines that are shown from the start
   */
  constructor(list, announced = []) {
    this.list = list;
    /** @type {(Line | null)[]} */
    this.lines = LINES.map(() => null);
    LINES.forEach(({ title }, index) => { if (announced.includes(title)) this.#line(index); });
  }

  /** @param {ProgressEvent} event */
  report(event) {
    const index = LINES.findIndex(({ phases }) => phases.includes(event.phase));
    if (index >= 0) this.#line(index).report(event);
  }

  /** Show loading as done: lines that turned out not to be needed are removed. */
  finish() {
    for (const line of this.lines) {
      if (line?.row.dataset.state === 'waiting') line.row.remove();
      if (line?.row.dataset.state === 'busy') line.end();
    }
  }

  /** Show loading as failed. */
  stop() {
    for (const line of this.lines) {
      if (line?.row.dataset.state === 'busy') line.row.dataset.state = 'stopped';
    }
  }

  /** @param {number} index */
  #line(index) {
    const known = this.lines[index];
    if (known) return known;
    const { title, phases } = LINES[index];
    const line = new Line(title, phases[phases.length - 1]);
    this.lines[index] = line;
    const next = this.lines.slice(index + 1).find((later) => later !== null);
    this.list.insertBefore(line.row, next?.row ?? null);
    return line;
  }
}
