// @ts-check
/** Convert tensors to images: `toImageData` and `toDataURL`; pixels.js has the inverse. */

import { optionsOf } from './arguments.js';

/** @typedef {import('../pyruntime.js').ToImageOptions} ToImageOptions */
/** @typedef {import('../pyruntime.js').Tensor} Tensor */

/** Channel indices of red, green, blue and alpha, by image format. @type {Record<string, number[]>} */
const ORDERS = { RGB: [0, 1, 2], BGR: [2, 1, 0], RBG: [0, 2, 1], RGBA: [0, 1, 2, 3] };

/**
 * @param {string} format
 * @returns {number[]}
 */
export function order(format) {
  const places = ORDERS[format];
  if (!places) throw new TypeError(`the image format is one of ${Object.keys(ORDERS).join(', ')}, not '${format}'`);
  return places;
}

/**
 * Return a number for each channel.
 * @param {number | readonly number[] | undefined} given
 * @param {number} fallback
 */
export function perChannel(given, fallback) {
  return [0, 1, 2, 3].map((i) => (typeof given === 'number' ? given : given?.[i] ?? fallback));
}

/**
 * @param {number} width
 * @param {number} height
 * @returns {CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D}
 */
export function makeContext(width, height) {
  const canvas = globalThis.document ? document.createElement('canvas') : new OffscreenCanvas(width, height);
  Object.assign(canvas, { width, height });
  const context = /** @type {HTMLCanvasElement} */ (canvas).getContext('2d', { willReadFrequently: true });
  if (!context) throw new Error('this browser gives no 2D context of a canvas');
  return context;
}

/**
 * Compute (value - bias) * mean of every channel, rounded and clamped to a byte; a single channel is grey.
 * @param {Pick<Tensor, 'data' | 'dims'>} tensor
 * @param {ToImageOptions} [options]
 * @returns {ImageData}
 */
export function tensorToImageData({ data, dims }, options) {
  const { format, tensorLayout = 'NCHW', norm } = optionsOf('options', options);
  if (dims.length !== 4 || dims[0] !== 1) throw new RangeError(`a picture is a tensor [1, ...] of rank 4, not [${dims}]`);
  const [channels, height, width] = tensorLayout === 'NHWC' ? [dims[3], dims[1], dims[2]] : dims.slice(1);
  const places = channels === 1 ? [0, 0, 0] : order(format ?? (channels === 4 ? 'RGBA' : 'RGB'));
  if (channels !== 1 && places.length !== channels) {
    throw new RangeError(`a picture with ${channels} channels is not ${format ?? 'RGB'}`);
  }
  const mean = perChannel(norm?.mean, 255);
  const bias = perChannel(norm?.bias, 0);
  const [pixelStep, channelStep] = tensorLayout === 'NHWC' ? [channels, 1] : [1, width * height];
  const image = new ImageData(width, height);
  const values = /** @type {ArrayLike<number>} */ (data);
  if (places.length === 3) image.data.fill(255);
  places.forEach((place, channel) => {
    let source = place * channelStep;
    for (let at = channel; at < image.data.length; at += 4, source += pixelStep) {
      image.data[at] = (values[source] - bias[channel]) * mean[channel];
    }
  });
  return image;
}

/**
 * @param {Pick<Tensor, 'data' | 'dims'>} tensor
 * @param {ToImageOptions} [options]
 * @returns {HTMLCanvasElement}
 */
export function tensorToCanvas(tensor, options) {
  const image = tensorToImageData(tensor, options);
  const context = makeContext(image.width, image.height);
  context.putImageData(image, 0, 0);
  const { canvas } = context;
  if (!('toDataURL' in canvas)) throw new Error('toDataURL needs a document; use toImageData');
  return canvas;
}
