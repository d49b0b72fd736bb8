// @ts-check
/** Pictures to tensors and back: `Tensor.fromImage`, `toImageData` and `toDataURL`. */

import { optionsOf, wrong } from './arguments.js';

/** @typedef {import('./pyruntime.js').ImageSource} ImageSource */
/** @typedef {import('./pyruntime.js').FromImageOptions} FromImageOptions */
/** @typedef {import('./pyruntime.js').ToImageOptions} ToImageOptions */
/** @typedef {import('./pyruntime.js').Tensor} Tensor */

/** Places of red, green, blue and alpha among a tensor's channels. @type {Record<string, number[]>} */
const ORDERS = { RGB: [0, 1, 2], BGR: [2, 1, 0], RBG: [0, 2, 1], RGBA: [0, 1, 2, 3] };

/**
 * @param {string} format
 * @returns {number[]}
 */
function order(format) {
  const places = ORDERS[format];
  if (!places) throw new TypeError(`the image format is one of ${Object.keys(ORDERS).join(', ')}, not '${format}'`);
  return places;
}

/**
 * A number for each channel.
 * @param {number | readonly number[] | undefined} given
 * @param {number} fallback
 */
function perChannel(given, fallback) {
  return [0, 1, 2, 3].map((i) => (typeof given === 'number' ? given : given?.[i] ?? fallback));
}

/**
 * @param {number} width
 * @param {number} height
 * @returns {CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D}
 */
function makeContext(width, height) {
  const canvas = globalThis.document ? document.createElement('canvas') : new OffscreenCanvas(width, height);
  Object.assign(canvas, { width, height });
  const context = /** @type {HTMLCanvasElement} */ (canvas).getContext('2d', { willReadFrequently: true });
  if (!context) throw new Error('this browser gives no 2D context of a canvas');
  return context;
}

/**
 * What can be drawn of `image`, and its size.
 * @param {ImageSource} image
 * @returns {Promise<{picture: CanvasImageSource, width: number, height: number}>}
 */
async function drawable(image) {
  if (typeof image === 'string') {
    const element = new Image();
    element.crossOrigin = 'anonymous';
    element.src = image;
    await element.decode().catch(() => {
      throw new Error(`the image ${image.slice(0, 100)} cannot be loaded`);
    });
    return { picture: element, width: element.naturalWidth, height: element.naturalHeight };
  }
  if (image instanceof Blob) {
    const bitmap = await createImageBitmap(image);
    return { picture: bitmap, width: bitmap.width, height: bitmap.height };
  }
  if (typeof image !== 'object' || image === null || !('width' in image)) {
    throw wrong('image', 'an ImageData, an ImageBitmap, an image, a canvas, a video, a Blob or a URL', image);
  }
  const { width, height, naturalWidth, naturalHeight, videoWidth, videoHeight } = /** @type {any} */ (image);
  const size = { width: naturalWidth || videoWidth || width, height: naturalHeight || videoHeight || height };
  if (!(size.width > 0 && size.height > 0)) throw new TypeError('the image has no size: is it loaded?');
  return { picture: /** @type {CanvasImageSource} */ (image), ...size };
}

/**
 * RGBA pixels of `image`, scaled to `resizedWidth` by `resizedHeight` where these are given.
 * @param {ImageSource} image
 * @param {FromImageOptions} options
 * @returns {Promise<ImageData>}
 */
async function pixels(image, { resizedWidth, resizedHeight }) {
  const isData = typeof ImageData !== 'undefined' && image instanceof ImageData;
  if (isData && !resizedWidth && !resizedHeight) return image;
  const source = isData ? await createImageBitmap(image) : image;
  const { picture, width, height } = await drawable(/** @type {ImageSource} */ (source));
  const [columns, rows] = [resizedWidth ?? width, resizedHeight ?? height];
  const context = makeContext(columns, rows);
  context.imageSmoothingQuality = 'high';
  context.drawImage(picture, 0, 0, columns, rows);
  return context.getImageData(0, 0, columns, rows);
}

/**
 * (pixel + bias) / mean of every channel, as the data of a tensor.
 * @param {ImageSource} image
 * @param {FromImageOptions} [options]
 * @returns {Promise<{type: 'float32' | 'uint8', data: Float32Array | Uint8Array, dims: number[]}>}
 */
export async function imageToTensor(image, options) {
  const { tensorFormat = 'RGB', tensorLayout = 'NCHW', dataType = 'float32', norm } = optionsOf('options', options);
  const places = order(tensorFormat);
  const { data: source, width, height } = await pixels(image, options ?? {});
  const channels = places.length;
  const data = dataType === 'uint8' ? new Uint8ClampedArray(width * height * channels)
    : new Float32Array(width * height * channels);
  const mean = perChannel(norm?.mean, dataType === 'uint8' ? 1 : 255);
  const bias = perChannel(norm?.bias, 0);
  const [pixelStep, channelStep] = tensorLayout === 'NHWC' ? [channels, 1] : [1, width * height];
  for (let channel = 0; channel < channels; channel++) {
    const [add, divide] = [bias[channel], mean[channel]];
    let target = places[channel] * channelStep;
    for (let at = channel; at < source.length; at += 4, target += pixelStep) data[target] = (source[at] + add) / divide;
  }
  const dims = tensorLayout === 'NHWC' ? [1, height, width, channels] : [1, channels, height, width];
  return { type: dataType, data: data instanceof Uint8ClampedArray ? new Uint8Array(data.buffer) : data, dims };
}

/**
 * (value - bias) * mean of every channel, rounded and clamped to a byte; one channel is grey.
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
