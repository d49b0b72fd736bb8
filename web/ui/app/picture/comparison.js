// @ts-check
import { byId } from '../../dom.js';
import { SCALE } from './enlarger.js';

/** Two pictures in one place, before and after, with a handle between them. */
export class Comparison {
  constructor() {
    this.stage = byId('stage');
    this.before = /** @type {HTMLCanvasElement} */ (byId('before'));
    this.after = /** @type {HTMLCanvasElement} */ (byId('after'));
    this.label = byId('after-label');
    this.handle = /** @type {HTMLInputElement} */ (byId('split'));
    this.handle.addEventListener('input', () => this.#split());
    this.#split();
  }

  /** Show the browser's enlargement of these pixels by three; the model's picture follows. @param {ImageData} pixels */
  showBefore(pixels) {
    const { width, height } = pixels;
    const small = document.createElement('canvas');
    Object.assign(small, { width, height });
    context(small).putImageData(pixels, 0, 0);
    resize(this.before, width * SCALE, height * SCALE);
    const target = context(this.before);
    target.imageSmoothingQuality = 'high';
    target.drawImage(small, 0, 0, width * SCALE, height * SCALE);
  }

  /** Show only the browser's picture while the model runs. @param {ImageData} pixels */
  showWorking(pixels) {
    this.showBefore(pixels);
    this.label.textContent = 'model is working';
    this.stage.dataset.state = 'working';
  }

  /** @param {ImageData} pixels SCALE times as large */
  showAfter(pixels) {
    this.label.textContent = 'model';
    resize(this.after, pixels.width, pixels.height);
    context(this.after).putImageData(pixels, 0, 0);
    this.stage.dataset.state = 'ready';
  }

  #split() {
    this.stage.style.setProperty('--split', `${this.handle.value}%`);
    this.handle.setAttribute('aria-valuetext', `${this.handle.value} % from the left: browser, then model`);
  }
}

/** @param {HTMLCanvasElement} canvas */
function context(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
}

/** @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
function resize(canvas, width, height) {
  if (canvas.width === width && canvas.height === height) return;
  Object.assign(canvas, { width, height });
}
