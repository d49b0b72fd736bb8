// @ts-check
/** Conversion of pictures, drawings and numbers to the tensors that a model expects. */

import { luminance, pictureLayout } from '../draw/luminance.js';
import { rasterize } from '../draw/raster.js';
import { Tensor } from '../../pyruntime.js';

/** @typedef {import('../../pyruntime.js').ValueMetadata} ValueMetadata */
/** @typedef {import('../../pyruntime.js').TensorType} TensorType */
/** @typedef {{mean: number[], std: number[]}} Scale of each channel, for pixels in [0, 1] */

/** Longer side in pixels of a picture, for models with dynamic sizes. */
const LARGEST = 512;

/**
 * Parse the attributes `mean` and `std`: one number for all channels, or one for each, separated by commas.
 * @param {string | null} mean
 * @param {string | null} std
 * @returns {Scale}
 */
export function scaleOf(mean, std) {
  const perChannel = (/** @type {string | null} */ text, /** @type {number} */ fallback) => {
    const numbers = (text ?? '').split(',').filter((part) => part.trim()).map(Number);
    return [0, 1, 2, 3].map((i) => numbers[i] ?? numbers[0] ?? fallback);
  };
  return { mean: perChannel(mean, 0), std: perChannel(std, 1) };
}

/**
 * Return how a model's input holds a picture.
 * @param {ValueMetadata} input
 * @returns {{layout: 'NCHW' | 'NHWC' | 'flat', channels: number, height: number | null, width: number | null}}
 */
function pictureShape({ name, shape, isTensor }) {
  const number = (/** @type {number | string} */ dim) => (typeof dim === 'number' ? dim : null);
  if (isTensor && shape.length === 4) {
    const { layout, channels } = pictureLayout(shape) ?? { layout: /** @type {const} */ ('NCHW'), channels: number(shape[1]) ?? 3 };
    const [height, width] = layout === 'NHWC' ? shape.slice(1) : shape.slice(2);
    return { layout, channels, height: number(height), width: number(width) };
  }
  const known = shape.slice(shape.length > 2 ? -2 : -1).map(number);
  const size = known.every((dim) => dim !== null) ? known.reduce((all, dim) => Number(all) * Number(dim), 1) : null;
  const side = Math.sqrt(Number(size));
  if (!isTensor || !size || !Number.isInteger(side)) {
    throw new TypeError(`input '${name}' [${shape}] is no picture; use input="json"`);
  }
  return { layout: 'flat', channels: 1, height: side, width: side };
}

/**
 * Convert a drawing to the model's input: ink in [0, 1], then (ink - mean) / std.
 * @param {ValueMetadata} input
 * @param {ReadonlyArray<ReadonlyArray<import('../draw/raster.js').Point>>} strokes
 * @param {Scale} scale
 */
export function drawingTensor(input, strokes, scale) {
  const { layout, channels, height, width } = pictureShape(input);
  const side = width ?? height ?? 28;
  const ink = rasterize(strokes, side);
  const values = new Float32Array(ink.length * channels);
  for (let i = 0; i < values.length; i++) {
    const [pixel, channel] = layout === 'NHWC' ? [Math.floor(i / channels), i % channels]
      : [i % ink.length, Math.floor(i / ink.length)];
    values[i] = (ink[pixel] - scale.mean[channel]) / scale.std[channel];
  }
  return typed(input.type, values, dimsOf(input, layout, channels, side, side));
}

/**
 * Convert a picture to the model's input, cropped to its proportions at the center.
 * @param {ValueMetadata} input
 * @param {ImageBitmap} picture
 * @param {Scale} scale
 * @returns {Promise<{tensor: Tensor, canvas: HTMLCanvasElement}>} `canvas` shows what the model sees
 */
export async function pictureTensor(input, picture, scale) {
  const { layout, channels, height, width } = pictureShape(input);
  const shrink = Math.min(1, LARGEST / Math.max(picture.width, picture.height));
  const canvas = document.createElement('canvas');
  canvas.width = width ?? Math.round(picture.width * shrink);
  canvas.height = height ?? Math.round(picture.height * shrink);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { willReadFrequently: true }));
  const zoom = Math.max(canvas.width / picture.width, canvas.height / picture.height);
  const [w, h] = [picture.width * zoom, picture.height * zoom];
  context.imageSmoothingQuality = 'high';
  context.fillStyle = '#fff';
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(picture, (canvas.width - w) / 2, (canvas.height - h) / 2, w, h);
  const isBytes = input.type === 'uint8';
  const tensor = await Tensor.fromImage(context.getImageData(0, 0, canvas.width, canvas.height), {
    tensorFormat: channels === 4 ? 'RGBA' : 'RGB',
    tensorLayout: layout === 'NHWC' ? 'NHWC' : 'NCHW',
    dataType: isBytes ? 'uint8' : 'float32',
    norm: isBytes ? undefined : { mean: scale.std.map((std) => 255 * std), bias: scale.mean.map((mean) => -255 * mean) },
  });
  const data = channels === 1 ? luminance(/** @type {any} */ (tensor.data), layout) : /** @type {any} */ (tensor.data);
  return { tensor: typed(input.type, data, dimsOf(input, layout, channels, canvas.height, canvas.width)), canvas };
}

/**
 * @param {ValueMetadata} input
 * @param {string} layout
 * @param {number} channels
 * @param {number} height
 * @param {number} width
 */
function dimsOf({ shape }, layout, channels, height, width) {
  if (layout === 'NHWC') return [1, height, width, channels];
  if (layout === 'NCHW') return [1, channels, height, width];
  return shape.map((dim) => (typeof dim === 'number' ? dim : 1));
}

/** @param {TensorType} type @param {Float32Array | Uint8Array} values @param {number[]} dims */
function typed(type, values, dims) {
  return type === 'float32' && values instanceof Float32Array ? new Tensor(type, values, dims)
    : new Tensor(type, [...values], dims);
}

/**
 * Convert numbers (nested arrays, a typed array, one number) to an input.
 * @param {ValueMetadata} input
 * @param {unknown} value
 * @returns {Tensor}
 */
export function numbersTensor(input, value) {
  if (value instanceof Tensor) return value;
  const { name, shape, type } = input;
  if (ArrayBuffer.isView(value)) {
    const data = /** @type {any} */ (value);
    return new Tensor(type, data, fill(shape, data.length));
  }
  const dims = [];
  for (let level = value; Array.isArray(level); [level] = level) dims.push(level.length);
  const flat = Array.isArray(value) ? value.flat(Infinity) : [value];
  if (flat.length !== dims.reduce((all, dim) => all * dim, 1)) throw new TypeError(`input '${name}': rows of unlike length`);
  while (dims.length < shape.length && (typeof shape[shape.length - dims.length - 1] === 'string'
    || shape[shape.length - dims.length - 1] === 1)) dims.unshift(1);
  return new Tensor(type, flat, dims);
}

/**
 * Return the dimensions for `size` elements: the symbolic one takes the remainder, others are 1.
 * @param {readonly (number | string)[]} shape
 * @param {number} size
 */
function fill(shape, size) {
  const known = shape.reduce((/** @type {number} */ all, dim) => all * (typeof dim === 'number' ? dim : 1), 1);
  const open = shape.findLastIndex((dim) => typeof dim !== 'number');
  return shape.map((dim, i) => (typeof dim === 'number' ? dim : i === open ? size / known : 1));
}

/**
 * Return JSON of zeros in the inputs' shapes, as a template.
 * @param {readonly ValueMetadata[]} inputs
 */
export function template(inputs) {
  const zeros = (/** @type {readonly (number | string)[]} */ shape, /** @type {string | number | boolean} */ zero) => {
    const dims = shape.map((dim) => (typeof dim === 'number' ? dim : 1));
    if (dims.reduce((all, dim) => all * dim, 1) > 64) return null;
    return dims.reduceRight((/** @type {unknown} */ inner, dim) => Array(dim).fill(inner), zero);
  };
  const values = inputs.map(({ name, shape, type }) => (
    [name, zeros(shape, type === 'string' ? '' : type === 'bool' ? false : 0)]));
  return JSON.stringify(values.length === 1 ? values[0][1] ?? [] : Object.fromEntries(values));
}
