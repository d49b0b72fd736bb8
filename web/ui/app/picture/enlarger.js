// @ts-check
/** The super-resolution model: three times as many pixels in each direction, whole or tile by tile. */

import { SITE } from '../../../addresses.js';
import { InferenceSession, Tensor } from '../../../pyruntime.js';
import { isKeeping } from '../model/store.js';

export const SCALE = 3;

/** Receptive field of the model in pixels: ten 3x3 convolutions; the cubic filter's two are less. */
export const MARGIN = 10;

/** Largest tile, margins included, which bounds GPU memory for any picture size. */
const TILE = 192;

const MODEL = new URL('models/enlarge3.onnx', SITE);
const PLAN = new URL('models/enlarge3.plan', SITE);

/**
 * Return where the tiles of a side start, and which of their pixels are kept. All tiles have the same size, so that one plan suffices.
 * @param {number} length length of the picture's side
 * @param {number} tile
 * @returns {{begin: number, from: number, to: number}[]} the kept pixels of the picture are from `from` to `to`
 */
export function cuts(length, tile = TILE) {
  if (length <= tile) return [{ begin: 0, from: 0, to: length }];
  const pieces = [];
  for (let from = 0; from < length;) {
    const begin = Math.min(Math.max(0, from - MARGIN), length - tile);
    const to = begin + tile === length ? length : begin + tile - MARGIN;
    pieces.push({ begin, from, to });
    from = to;
  }
  return pieces;
}

/** Convert RGBA bytes to the model's input. @param {ImageData} pixels */
function toTensor({ data, width, height }) {
  const size = width * height;
  const values = new Float32Array(3 * size);
  for (let i = 0; i < size; i++) {
    values[i] = data[4 * i] / 255;
    values[size + i] = data[4 * i + 1] / 255;
    values[2 * size + i] = data[4 * i + 2] / 255;
  }
  return new Tensor('float32', values, [1, 3, height, width]);
}

export class Enlarger {
  /** @param {InferenceSession} session */
  constructor(session) {
    this.session = session;
  }

  static async load() {
    return new Enlarger(await InferenceSession.create(MODEL, { plan: PLAN, cachePlan: isKeeping() }));
  }

  /**
   * @param {ImageData} pixels
   * @param {AbortSignal} [signal]
   * @returns {Promise<ImageData>} SCALE times as wide and high
   */
  async enlarge(pixels, signal) {
    const { enlarged } = await this.session.run({ picture: toTensor(pixels) }, signal ? { signal } : {});
    return enlarged.toImageData();
  }

  /**
   * Enlarge a picture of any size, tile by tile, without seams.
   * @param {CanvasRenderingContext2D} picture
   * @param {object} [options]
   * @param {(done: number, total: number) => void} [options.onProgress] tiles
   * @param {AbortSignal} [options.signal]
   * @param {number} [options.tile]
   * @returns {Promise<HTMLCanvasElement>}
   */
  async enlargeAll(picture, { onProgress, signal, tile = TILE } = {}) {
    const { width, height } = picture.canvas;
    const canvas = Object.assign(document.createElement('canvas'), { width: width * SCALE, height: height * SCALE });
    const target = canvas.getContext('2d');
    if (!target) throw new Error(`This browser gives no canvas of ${canvas.width} by ${canvas.height} pixels.`);
    const tiles = cuts(height, tile).flatMap((row) => cuts(width, tile).map((column) => ({ row, column })));
    const [high, wide] = [Math.min(height, tile), Math.min(width, tile)];
    for (const [done, { row, column }] of tiles.entries()) {
      onProgress?.(done, tiles.length);
      const result = await this.enlarge(picture.getImageData(column.begin, row.begin, wide, high), signal);
      signal?.throwIfAborted();
      const [left, top] = [column.from - column.begin, row.from - row.begin];
      target.putImageData(result, column.begin * SCALE, row.begin * SCALE, left * SCALE, top * SCALE,
        (column.to - column.from) * SCALE, (row.to - row.from) * SCALE);
    }
    onProgress?.(tiles.length, tiles.length);
    return canvas;
  }

  release() {
    return this.session.release();
  }
}
