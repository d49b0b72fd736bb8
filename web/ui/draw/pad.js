// @ts-check
import { onThemeChange, prefersStillness, sharpContext } from './canvas.js';

/** @typedef {import('./raster.js').Point} Point */

const PEN_WIDTH = 0.055;
const WRITING_MS = 900;

/**
 * A square to draw on with mouse, touch or pen. Dispatches `change` during drawing, `strokeend` when the pen is lifted, `begin` when a
 * person starts to draw.
 */
export class Pad extends EventTarget {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    super();
    this.canvas = canvas;
    /** @type {Point[][]} */
    this.strokes = [];
    /** @type {HTMLCanvasElement | null} */
    this.picture = null;
    /** Whether a person drew the content; other content is cleared when a person starts to draw. */
    this.isDrawn = false;
    this.pointer = -1;
    this.writing = 0;
    canvas.addEventListener('pointerdown', (event) => this.#down(event));
    canvas.addEventListener('pointermove', (event) => this.#move(event));
    for (const end of ['pointerup', 'pointercancel']) {
      canvas.addEventListener(end, (event) => this.#up(/** @type {PointerEvent} */ (event)));
    }
    new ResizeObserver(() => this.redraw()).observe(canvas);
    onThemeChange(() => this.redraw());
  }

  get isEmpty() {
    return this.strokes.length === 0 && !this.picture;
  }

  clear() {
    this.#reset();
    this.redraw();
    this.#tell('change');
  }

  /** Show a picture instead of strokes.
   *
   * @param {HTMLCanvasElement} picture
   */
  show(picture) {
    this.#reset();
    this.picture = picture;
    this.redraw();
    this.#tell('change');
  }

  /** Animate strokes like handwriting; it stops when a person starts to draw.
   *
   * @param {Point[][]} strokes
   */
  write(strokes) {
    this.#reset();
    const total = strokes.reduce((sum, stroke) => sum + stroke.length, 0);
    const start = performance.now();
    const step = (/** @type {number} */ now) => {
      const part = prefersStillness() ? 1 : Math.min(1, Math.max(0, now - start) / WRITING_MS);
      let left = Math.ceil(part * total);
      this.strokes = strokes
        .map((stroke) => {
          const visible = stroke.slice(0, Math.max(0, left));
          left -= stroke.length;
          return visible;
        })
        .filter((stroke) => stroke.length);
      this.redraw();
      this.#tell('change');
      this.writing = part < 1 ? requestAnimationFrame(step) : 0;
      if (part >= 1) this.#tell('strokeend');
    };
    this.writing = requestAnimationFrame(step);
  }

  redraw() {
    const context = sharpContext(this.canvas);
    const side = this.canvas.clientWidth;
    if (this.picture) {
      context.imageSmoothingEnabled = false;
      context.drawImage(this.picture, 0, 0, side, side);
    }
    context.strokeStyle = getComputedStyle(this.canvas).color;
    context.lineWidth = PEN_WIDTH * side;
    context.lineCap = context.lineJoin = 'round';
    for (const stroke of this.strokes) {
      context.beginPath();
      const [first, ...rest] = stroke.map(([x, y]) => [x * side, y * side]);
      context.moveTo(first[0], first[1]);
      let [lastX, lastY] = first;
      for (const [x, y] of rest) {
        context.quadraticCurveTo(lastX, lastY, (lastX + x) / 2, (lastY + y) / 2);
        [lastX, lastY] = [x, y];
      }
      context.lineTo(lastX, lastY);
      context.stroke();
    }
  }

  #reset() {
    if (this.writing) cancelAnimationFrame(this.writing);
    this.writing = 0;
    this.strokes = [];
    this.picture = null;
    this.isDrawn = false;
  }

  /** @param {PointerEvent} event */
  #down(event) {
    if (!event.isPrimary || event.button !== 0) return;
    if (!this.isDrawn) this.#reset();
    this.isDrawn = true;
    this.pointer = event.pointerId;
    this.canvas.setPointerCapture(event.pointerId);
    this.strokes.push([this.#place(event)]);
    this.#tell('begin');
    this.redraw();
    this.#tell('change');
    event.preventDefault();
  }

  /** @param {PointerEvent} event */
  #move(event) {
    if (event.pointerId !== this.pointer) return;
    const stroke = this.strokes[this.strokes.length - 1];
    const events = event.getCoalescedEvents?.() ?? [];
    for (const each of events.length ? events : [event]) stroke.push(this.#place(each));
    this.redraw();
    this.#tell('change');
  }

  /** @param {PointerEvent} event */
  #up(event) {
    if (event.pointerId !== this.pointer) return;
    this.pointer = -1;
    this.#tell('strokeend');
  }

  /** @param {PointerEvent} event @returns {Point} */
  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    const inside = (/** @type {number} */ part) => Math.min(1, Math.max(0, part));
    return [inside((event.clientX - box.left) / box.width), inside((event.clientY - box.top) / box.height)];
  }

  /** @param {string} type */
  #tell(type) {
    this.dispatchEvent(new Event(type));
  }
}
