// @ts-check
import { sizeOf } from '../../../api/elements.js';
import { Tensor } from '../../../pyruntime.js';

/** @typedef {import('../../../pyruntime.js').ValueMetadata} ValueMetadata */

/** Description of `randomTensor`'s values. */
export const RANDOM_INPUT = 'floats uniform in [0, 1), integers 0 or 1, attention masks all 1; the same every time';

/** Initial sizes of symbolic dimensions, by name; all others are 1. @type {[RegExp, number][]} */
const USUAL_SIZES = [[/seq|len|token|time/i, 16], [/height|width|^[hw]$/i, 224]];

/**
 * Return the symbolic dimensions of the inputs: a key for each, with the label to show and an initial size. Each dimension without a name
 * is a separate one.
 * @param {readonly ValueMetadata[]} inputs
 * @returns {Map<string, {label: string, size: number}>}
 */
export function symbolicDimensions(inputs) {
  const symbols = new Map();
  for (const { name, shape } of inputs) {
    shape.forEach((dimension, axis) => {
      if (typeof dimension === 'number') return;
      const key = dimensionKey(name, axis, dimension);
      const size = USUAL_SIZES.find(([pattern]) => pattern.test(dimension))?.[1] ?? 1;
      if (!symbols.has(key)) symbols.set(key, { label: dimension || `${name}, axis ${axis}`, size });
    });
  }
  return symbols;
}

/** @param {string} input @param {number} axis @param {string} dimension */
function dimensionKey(input, axis, dimension) {
  return dimension || `${input}[${axis}]`;
}

/** @param {ValueMetadata} input @param {ReadonlyMap<string, number>} sizes of the symbolic dimensions, by key */
export function dimsOf({ name, shape }, sizes) {
  return shape.map((dimension, axis) => (
    typeof dimension === 'number' ? dimension : sizes.get(dimensionKey(name, axis, dimension)) ?? 1));
}

/**
 * @param {ValueMetadata} input
 * @param {ReadonlyMap<string, number>} sizes sizes of the symbolic dimensions, by key
 * @returns {Tensor}
 */
export function randomTensor(input, sizes) {
  const { name, type } = input;
  const dims = dimsOf(input, sizes);
  const size = sizeOf(dims);
  const random = generator(size);
  const bit = /mask/i.test(name) ? () => 1 : () => Number(random() < 0.5);
  const fill = (/** @type {(i: number) => any} */ value) => Array.from({ length: size }, (_, i) => value(i));
  switch (type) {
    case 'float32': return new Tensor(type, Float32Array.from({ length: size }, random), dims);
    case 'float64': return new Tensor(type, Float64Array.from({ length: size }, random), dims);
    // Bits of values in [0.5, 1), as older browsers lack a conversion.
    case 'float16': return new Tensor(type, Uint16Array.from({ length: size }, () => 0x3800 | (random() * 1024)), dims);
    case 'bfloat16': return new Tensor(type, Uint16Array.from({ length: size }, () => 0x3f00 | (random() * 128)), dims);
    case 'string': return new Tensor(type, fill((i) => `text ${i}`), dims);
    case 'int4': case 'uint4': {
      const bytes = Uint8Array.from({ length: Math.ceil(size / 2) }, () => bit() | (bit() << 4));
      return new Tensor(type, bytes, dims);
    }
    default: return new Tensor(type, fill(bit), dims);
  }
}

/** Return a generator of pseudo-random numbers in [0, 1): mulberry32. @param {number} seed @returns {() => number} */
function generator(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
