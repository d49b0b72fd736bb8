// @ts-check
/** The speed of generation, and the time of each part of a token. */

import { h } from '../../dom.js';
import { formatCount, formatTime, median } from '../format.js';

/** @typedef {import('../../../pyruntime.js').Piece} Piece */

/** @type {[keyof Piece['times'] | 'page', string][]} */
const PARTS = [['model', 'model, and reading its logits'], ['sampling', 'choosing the token'], ['text', 'tokens to text'], ['page', 'showing it']];

export class Pace {
  /** @type {Piece['times'][]} */
  #times = [];
  #begin = performance.now();
  #first = 0;
  #prompt = 0;

  /** @param {Piece} piece */
  add({ times, promptTokens }) {
    if (this.#times.length === 0) {
      this.#first = performance.now() - this.#begin;
      this.#prompt = promptTokens;
    }
    this.#times.push(times);
  }

  /** Tokens a second since the first one. */
  get speed() {
    const seconds = (performance.now() - this.#begin - this.#first) / 1000;
    return this.#times.length > 1 ? (this.#times.length - 1) / seconds : 0;
  }

  /** The speed as text. */
  get words() {
    if (!this.#times.length) return 'reading the prompt';
    const speed = this.speed ? `, ${this.speed.toPrecision(3)} tokens a second` : '';
    return `${formatCount(this.#times.length, 'token')}${speed}; the first after ${formatTime(this.#first)} (${formatCount(this.#prompt, 'token')} of the prompt)`;
  }

  /** Return the median times of a token's parts as bars, without the first token. @returns {HTMLElement | null} */
  chart() {
    const later = this.#times.slice(1);
    if (!later.length) return null;
    const own = { model: 0, sampling: 0, text: 0, page: 0 };
    for (const part of /** @type {const} */ (['model', 'sampling', 'text'])) own[part] = median(later.map((times) => times[part]));
    const whole = (performance.now() - this.#begin - this.#first) / later.length;
    own.page = Math.max(0, whole - own.model - own.sampling - own.text);
    const sum = own.model + own.sampling + own.text + own.page;
    const bars = PARTS.flatMap(([part, title]) => {
      const bar = h('span', { class: 'candidate-bar', 'aria-hidden': 'true' });
      bar.style.setProperty('--part', String(own[part] / sum));
      return [h('dt', {}, title), h('dd', {}, bar, formatTime(own[part]))];
    });
    return h('div', {}, h('p', { class: 'caption' }, 'Median time of a token after the first:'), h('dl', { class: 'spent' }, ...bars));
  }
}
