// @ts-check
import { Tensor } from '../../../pyruntime.js';
import { h } from '../../dom.js';
import { ARRAYS, lengthOf, sizeOf } from '../../../api/elements.js';
import { luminance, pictureLayout } from '../../draw/luminance.js';
import { formatShape } from '../format.js';
import { readNpy } from './npy.js';
import { dimsOf, randomTensor } from './random_input.js';

/** @typedef {import('../../../pyruntime.js').ValueMetadata} ValueMetadata */

const KINDS = { random: 'random', zeros: 'zeros', image: 'a picture', json: 'JSON', npy: 'an .npy file' };

/** How pixels are scaled: (byte + bias) / mean. @type {Record<string, {label: string, mean: number[], bias: number[]}>} */
const SCALES = {
  unit: { label: '0 to 1', mean: [255, 255, 255], bias: [0, 0, 0] },
  signed: { label: '−1 to 1', mean: [127.5, 127.5, 127.5], bias: [-127.5, -127.5, -127.5] },
  imagenet: { label: 'ImageNet mean and deviation', mean: [58.395, 57.12, 57.375], bias: [-123.675, -116.28, -103.53] },
  byte: { label: '0 to 255', mean: [1, 1, 1], bias: [0, 0, 0] },
};

/** Editor for the value of one input. */
export class InputEditor {
  /** @param {ValueMetadata} input */
  constructor(input) {
    this.input = input;
    this.picture = /^(float32|uint8)$/.test(input.type) ? pictureLayout(input.shape) : null;
    const kinds = Object.entries(KINDS).filter(([kind]) => kind !== 'image' || this.picture);
    this.kind = h('select', { 'aria-label': `Fill ${input.name} with`, on: { change: () => this.#choose() } },
      ...kinds.map(([value, label]) => h('option', { value }, label)));
    this.file = h('input', { type: 'file', 'aria-label': `File for ${input.name}` });
    this.scale = h('select', { 'aria-label': `What the pixels of ${input.name} become` },
      ...Object.entries(SCALES).map(([value, { label }]) => h('option', { value }, label)));
    if (input.type === 'uint8') this.scale.value = 'byte';
    this.json = h('textarea', { rows: 3, spellcheck: 'false', 'aria-label': `JSON for ${input.name}`,
      placeholder: input.type === 'string' ? '["text", …]' : '[[1, 2], [3, 4]], or a flat list' });
    const shape = formatShape(input.shape.map((dimension) => (dimension === '' ? null : dimension)));
    this.element = h('div', { class: 'input', role: 'group', 'aria-label': `Input ${input.name}` },
      h('span', { class: 'input-name' }, h('b', {}, input.name), ` ${input.type} ${shape}`),
      this.kind, this.file, this.scale, this.json);
    this.#choose();
  }

  #choose() {
    const { value } = this.kind;
    this.file.hidden = value !== 'npy' && value !== 'image';
    this.file.accept = value === 'npy' ? '.npy' : 'image/*';
    this.file.value = '';
    this.scale.hidden = value !== 'image';
    this.json.hidden = value !== 'json';
  }

  /** @param {ReadonlyMap<string, number>} sizes of symbolic dimensions @returns {Promise<Tensor>} */
  async tensor(sizes) {
    const dims = dimsOf(this.input, sizes);
    switch (this.kind.value) {
      case 'zeros': return zeros(this.input.type, dims);
      case 'json': return fromJson(this.json.value, this.input, dims);
      case 'npy': return this.#checked(readNpy(await this.#chosen().arrayBuffer()));
      case 'image': return this.#image(dims);
      default: return randomTensor(this.input, sizes);
    }
  }

  #chosen() {
    const [file] = this.file.files ?? [];
    if (!file) throw new TypeError(`Choose a file for ${this.input.name}.`);
    return file;
  }

  /** @param {Tensor} tensor */
  #checked(tensor) {
    const { name, type, shape } = this.input;
    if (tensor.type !== type) throw new TypeError(`${name} is ${type}, the file has ${tensor.type}.`);
    const fits = tensor.dims.length === shape.length && shape.every((size, axis) => typeof size === 'string' || size === tensor.dims[axis]);
    if (!fits) throw new TypeError(`${name} is ${formatShape(shape)}, the file has ${formatShape(tensor.dims)}.`);
    return tensor;
  }

  /** @param {number[]} dims */
  async #image(dims) {
    const { layout, channels } = /** @type {NonNullable<typeof this.picture>} */ (this.picture);
    const [resizedHeight, resizedWidth] = layout === 'NCHW' ? dims.slice(2) : dims.slice(1, 3);
    const type = /** @type {'float32' | 'uint8'} */ (this.input.type);
    const { mean, bias } = SCALES[this.scale.value];
    const tensor = await Tensor.fromImage(this.#chosen(), {
      resizedWidth, resizedHeight, dataType: type, tensorLayout: layout, tensorFormat: channels === 4 ? 'RGBA' : 'RGB',
      norm: { mean: [...mean, 255], bias: [...bias, 0] } });
    const one = channels === 1 ? luma(tensor, layout) : tensor;
    return dims[0] > 1 ? repeated(one, dims[0]) : one;
  }
}

/** @param {import('../../../pyruntime.js').TensorType} type @param {number[]} dims */
function zeros(type, dims) {
  const length = lengthOf(type, sizeOf(dims));
  return new Tensor(type, type === 'string' ? new Array(length).fill('') : new ARRAYS[type](length), dims);
}

/** @param {any} value @returns {number[]} */
function nesting(value) {
  return Array.isArray(value) ? [value.length, ...nesting(value[0])] : [];
}

/**
 * Parse JSON: nested lists keep their shape; a flat list, or a number, takes the input's shape.
 * @param {string} text
 * @param {ValueMetadata} input
 * @param {number[]} dims
 */
function fromJson(text, { name, type }, dims) {
  /** @type {any} */
  let value;
  try {
    // Integers beyond 2^53 are parsed as strings, to keep their digits for BigInt.
    value = JSON.parse(/int64/.test(type) ? text.replace(/(?<![\w.])-?\d{15,}(?![\w.])/g, '"$&"') : text);
  } catch (error) {
    throw new TypeError(`The JSON for ${name} is not valid: ${/** @type {Error} */ (error).message}`);
  }
  const found = nesting(value);
  const flat = Array.isArray(value) ? value.flat(Infinity) : [value];
  const shape = found.length === dims.length ? found : dims;
  if (flat.length !== shape.reduce((product, dim) => product * dim, 1)) {
    throw new RangeError(`${name} is ${formatShape(shape)}, which is not ${flat.length} values.`);
  }
  if (type !== 'string' && flat.some((item) => typeof item === 'object' || (typeof item === 'string' && !/int64/.test(type)))) {
    throw new TypeError(`${name} is ${type}: the JSON must hold numbers only.`);
  }
  if (type === 'float16' && !('Float16Array' in globalThis)) {
    throw new TypeError('This browser cannot make float16 numbers; use an .npy file.');
  }
  return new Tensor(type, flat, shape);
}

/** Compute grey from red, green and blue. @param {Tensor} tensor @param {'NCHW' | 'NHWC'} layout */
function luma({ type, data, dims }, layout) {
  const [height, width] = layout === 'NCHW' ? dims.slice(2) : dims.slice(1, 3);
  const grey = luminance(/** @type {any} */ (data), layout);
  return new Tensor(type, grey, layout === 'NCHW' ? [1, 1, height, width] : [1, height, width, 1]);
}

/** Repeat a picture along the batch. @param {Tensor} tensor @param {number} count */
function repeated({ type, data, dims }, count) {
  const one = /** @type {Float32Array} */ (data);
  const all = new /** @type {any} */ (one.constructor)(one.length * count);
  for (let i = 0; i < count; i++) all.set(one, i * one.length);
  return new Tensor(type, all, [count, ...dims.slice(1)]);
}
