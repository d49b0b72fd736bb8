// @ts-check
import { onThemeChange, sharpContext } from '../draw/canvas.js';
import { SIZE } from '../draw/raster.js';
import { byId, h } from '../dom.js';

const ANNOUNCE_AFTER_MS = 500;

/** Ten bars, the most likely digit in large print, the model's input, and the same as text for screen readers. */
export class Prediction {
  constructor() {
    this.seen = byId('seen');
    this.digit = byId('answer-digit');
    this.sure = byId('answer-sure');
    this.announcement = byId('announce');
    this.timer = 0;
    /** @type {Float32Array | null} */
    this.image = null;
    this.bars = Array.from({ length: 10 }, (_, digit) => {
      const value = h('span', { class: 'bar-value' });
      const bar = h('li', { class: 'bar' }, h('span', { class: 'bar-digit' }, digit), h('span', { class: 'bar-track' },
        h('span', { class: 'bar-fill' })), value);
      byId('bars').append(bar);
      return { bar, value };
    });
    new ResizeObserver(() => this.#paint()).observe(this.seen);
    onThemeChange(() => this.#paint());
  }

  /**
   * @param {Float32Array} image
   * @param {Float32Array} probabilities
   */
  show(image, probabilities) {
    const best = probabilities.indexOf(Math.max(...probabilities));
    this.bars.forEach(({ bar, value }, digit) => {
      bar.style.setProperty('--part', String(probabilities[digit]));
      bar.classList.toggle('best', digit === best);
      value.textContent = percent(probabilities[digit]);
    });
    this.digit.textContent = String(best);
    this.sure.textContent = `${percent(probabilities[best])} sure`;
    this.image = image;
    this.#paint();
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      this.announcement.textContent = `This looks like ${best}, ${percent(probabilities[best])} sure.`;
    }, ANNOUNCE_AFTER_MS);
  }

  clear() {
    window.clearTimeout(this.timer);
    for (const { bar, value } of this.bars) {
      bar.style.setProperty('--part', '0');
      bar.classList.remove('best');
      value.textContent = '';
    }
    this.digit.textContent = '';
    this.sure.textContent = '';
    this.announcement.textContent = '';
    this.image = null;
    this.#paint();
  }

  #paint() {
    const canvas = /** @type {HTMLCanvasElement} */ (this.seen);
    const context = sharpContext(canvas);
    const cell = canvas.clientWidth / SIZE;
    context.fillStyle = getComputedStyle(canvas).color;
    this.image?.forEach((ink, i) => {
      context.globalAlpha = ink;
      context.fillRect((i % SIZE) * cell, Math.floor(i / SIZE) * cell, cell + 0.3, cell + 0.3);
    });
  }
}

/** @param {number} part */
function percent(part) {
  const value = part * 100;
  return value >= 99.95 ? '100%' : value >= 0.05 ? `${value.toFixed(1)}%` : '0%';
}
