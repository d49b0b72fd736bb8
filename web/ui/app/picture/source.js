// @ts-check
import { byId } from '../../dom.js';

/** Longest side of a picture in pixels; larger ones are scaled down first. */
export const LONGEST = 1280;

const STEP = 8;

/** A piece of a picture, in pixels. @typedef {{left: number, top: number, width: number, height: number}} Piece */

/**
 * The visitor's picture, scaled down, with a frame around the enlarged piece, which is moved by dragging or arrow keys. Dispatches `change`
 * whenever the piece or the picture changes.
 */
export class Source extends EventTarget {
  /** @param {{width: number, height: number}} frame size of the largest piece */
  constructor(frame) {
    super();
    this.frame = frame;
    this.map = /** @type {HTMLCanvasElement} */ (byId('map'));
    this.outline = byId('map-frame');
    const canvas = document.createElement('canvas');
    this.picture = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { willReadFrequently: true }));
    /** @type {Piece} */
    this.piece = { left: 0, top: 0, width: 0, height: 0 };
    this.map.addEventListener('pointerdown', (event) => {
      this.map.setPointerCapture(event.pointerId);
      this.#point(event);
    });
    this.map.addEventListener('pointermove', (event) => {
      if (this.map.hasPointerCapture(event.pointerId)) this.#point(event);
    });
    this.map.addEventListener('keydown', (event) => this.#key(event));
  }

  get isEmpty() {
    return !this.piece.width;
  }

  /**
   * Show a picture, or a frame of a video; the piece stays in place if the size does.
   * @param {CanvasImageSource} image
   * @param {number} width
   * @param {number} height
   * @param {number} [longest]
   */
  show(image, width, height, longest = LONGEST) {
    const part = Math.min(1, longest / Math.max(width, height));
    const [columns, rows] = [Math.max(1, Math.round(width * part)), Math.max(1, Math.round(height * part))];
    const { canvas } = this.picture;
    const same = canvas.width === columns && canvas.height === rows && !this.isEmpty;
    if (!same) Object.assign(canvas, { width: columns, height: rows });
    this.picture.imageSmoothingQuality = 'high';
    this.picture.fillStyle = '#fff';
    this.picture.fillRect(0, 0, columns, rows);
    this.picture.drawImage(image, 0, 0, columns, rows);
    if (!same) this.#frame();
    this.#paintMap();
    this.dispatchEvent(new Event('change'));
  }

  /** Return the pixels to enlarge. */
  pixels() {
    const { left, top, width, height } = this.piece;
    return this.picture.getImageData(left, top, width, height);
  }

  /** Set the piece to the largest centered one of the frame's shape. */
  #frame() {
    const { width, height } = this.picture.canvas;
    const part = Math.min(1, width / this.frame.width, height / this.frame.height);
    const size = { width: Math.max(1, Math.round(this.frame.width * part)), height: Math.max(1, Math.round(this.frame.height * part)) };
    this.piece = { ...size, left: Math.round((width - size.width) / 2), top: Math.round((height - size.height) / 2) };
    this.map.style.setProperty('--shape', String(width / height));
    this.map.parentElement?.style.setProperty('--shape', String(width / height));
  }

  #paintMap() {
    const { canvas } = this.picture;
    const part = Math.min(1, 320 / Math.max(canvas.width, canvas.height));
    const [width, height] = [Math.round(canvas.width * part), Math.round(canvas.height * part)];
    if (this.map.width !== width || this.map.height !== height) Object.assign(this.map, { width, height });
    /** @type {CanvasRenderingContext2D} */ (this.map.getContext('2d')).drawImage(canvas, 0, 0, width, height);
    this.#outline();
  }

  #outline() {
    this.outline.hidden = false;
    const { left, top, width, height } = this.piece;
    const { canvas } = this.picture;
    const places = { left: left / canvas.width, top: top / canvas.height, width: width / canvas.width, height: height / canvas.height };
    for (const [name, part] of Object.entries(places)) this.outline.style.setProperty(name, `${100 * part}%`);
    this.map.setAttribute('aria-label', `Your picture, ${canvas.width} by ${canvas.height} pixels. Enlarged is the piece `
      + `${left} from the left, ${top} from the top; arrow keys move it.`);
  }

  /** @param {number} left @param {number} top */
  #move(left, top) {
    const { canvas } = this.picture;
    const inside = (/** @type {number} */ value, /** @type {number} */ most) => Math.min(most, Math.max(0, Math.round(value)));
    const next = { ...this.piece, left: inside(left, canvas.width - this.piece.width), top: inside(top, canvas.height - this.piece.height) };
    if (next.left === this.piece.left && next.top === this.piece.top) return;
    this.piece = next;
    this.#outline();
    this.dispatchEvent(new Event('change'));
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const box = this.map.getBoundingClientRect();
    const { canvas } = this.picture;
    this.#move((event.clientX - box.left) / box.width * canvas.width - this.piece.width / 2,
      (event.clientY - box.top) / box.height * canvas.height - this.piece.height / 2);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const { left, top } = this.piece;
    const moves = /** @type {Record<string, [number, number]>} */ ({
      ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] });
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    this.#move(left + move[0], top + move[1]);
  }
}
