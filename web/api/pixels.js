// @ts-check
/** Convert images to tensors: `Tensor.fromImage`. */

import { optionsOf, wrong } from './arguments.js';
import { makeContext, order, perChannel } from './image.js';

/** @typedef {import('../pyruntime.js').ImageSource} ImageSource */
/** @typedef {import('../pyruntime.js').FromImageOptions} FromImageOptions */

/**
 * Return a drawable form of `image`, and its size.
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
 * Return RGBA pixels of `image`, scaled to `resizedWidth` by `resizedHeight` if given.
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
 * Compute (pixel + bias) / mean of every channel, as a tensor's data.
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
