// @ts-check
/** Progress of loading, computed from events: one number, and a bar that shows it. */

import { h } from '../dom.js';

/** Approximate fraction of each phase in the time of a first visit; the rest is for what follows. @type {Record<string, number>} */
const PARTS = { pyodide: 0.4, wheel: 0.05, adapter: 0.02, import: 0.08, model: 0.25, parse: 0.03, shaders: 0.12 };

/** Bytes assumed for a phase of unknown size. */
const UNKNOWN_BYTES = 13e6;

/** @type {Record<string, string>} */
const WORDS = { pyodide: 'Loading Python', wheel: 'Loading Python', import: 'Starting Python', model: 'Loading the model' };

/** @param {number} bytes */
function megabytes(bytes) {
  return (bytes / 1e6).toFixed(1);
}

class Progress {
  /** @type {Map<string, number>} */
  #done = new Map();
  #most = 0;

  /**
   * @param {import('../../pyruntime.js').ProgressEvent} event
   * @returns {{totalProgress: number, words: string}} `totalProgress` from 0 to 1, never decreasing; `words` with bytes if known
   */
  add({ phase, status, loaded = 0, total }) {
    if (phase === 'file') return this.add({ phase: 'model', status: 'progress', loaded, total });
    const part = status === 'end' ? 1 : status === 'progress' ? Math.min(0.95, loaded / (total || UNKNOWN_BYTES)) : 0;
    this.#done.set(phase, Math.max(part, this.#done.get(phase) ?? 0));
    // Python may have been started before: phases without events before the model's are done.
    const order = Object.keys(PARTS);
    const reached = order.indexOf(phase);
    if (reached >= order.indexOf('parse')) for (const name of order.slice(0, reached)) this.#done.set(name, 1);
    const sum = Object.entries(PARTS).reduce((all, [name, size]) => all + size * (this.#done.get(name) ?? 0), 0);
    this.#most = Math.max(this.#most, Math.min(0.98, sum));
    const bytes = loaded ? `: ${megabytes(loaded)}${total ? ` of ${megabytes(total)}` : ''} MB` : '';
    return { totalProgress: this.#most, words: `${WORDS[phase] ?? 'Preparing the model'}${bytes}` };
  }
}

/** Return a bar without text. @param {string} label */
function trackOf(label) {
  return h('div', { part: 'track', role: 'progressbar', 'aria-label': label, 'aria-valuemin': '0', 'aria-valuemax': '100' });
}

/** @param {HTMLElement} track @param {number} share fraction that is done */
function move(track, share) {
  track.style.setProperty('--done', String(share));
  track.setAttribute('aria-valuenow', String(Math.round(share * 100)));
}

/** Return the bar of a run, and its progress callback, which first calls `show` with the bar. @param {(bar: HTMLElement) => unknown} show */
export function runBar(show) {
  const element = trackOf('Running the model');
  const onProgress = (/** @type {import('../../pyruntime.js').ProgressEvent} */ { phase, loaded = 0, total = 1 }) => {
    if (phase !== 'run') return;
    if (!element.isConnected) show(element);
    move(element, loaded / total);
  };
  return { element, onProgress };
}

/** Return a bar, and a function that updates it by an event and returns the progress. */
export function progressBar() {
  const progress = new Progress();
  const words = h('span', { class: 'soft' }, 'Loading');
  const track = trackOf('Loading the model');
  const add = (/** @type {import('../../pyruntime.js').ProgressEvent} */ event) => {
    const { totalProgress, words: text } = progress.add(event);
    words.textContent = text;
    move(track, totalProgress);
    return totalProgress;
  };
  return { element: h('div', { part: 'loading' }, words, track), add };
}
