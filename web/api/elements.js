// @ts-check
/** Element types of tensors, and their typed arrays. */

import { wrong } from './arguments.js';

/** @typedef {import('../pyruntime.js').TensorType} TensorType */
/** @typedef {import('../pyruntime.js').TensorData} TensorData */
/** @typedef {import('../pyruntime.js').TypedArray} TypedArray */
/** @typedef {new (source: any, byteOffset?: number, length?: number) => TypedArray} TypedArrayConstructor */

/** Float16Array, if the browser supports it. @type {TypedArrayConstructor | undefined} */
const Float16 = /** @type {any} */ (globalThis).Float16Array;

/** Typed array of each tensor type except `string`. @type {Record<string, TypedArrayConstructor>} */
export const ARRAYS = {
  float32: Float32Array,
  float16: Float16 ?? Uint16Array,
  float64: Float64Array,
  bool: Uint8Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: /** @type {any} */ (BigInt64Array),
  uint64: /** @type {any} */ (BigUint64Array),
  // Raw bits; elements of 4 and 2 bits are packed into bytes, the first in the low bits.
  bfloat16: Uint16Array,
  float8e4m3fn: Uint8Array,
  float8e4m3fnuz: Uint8Array,
  float8e5m2: Uint8Array,
  float8e5m2fnuz: Uint8Array,
  float8e8m0: Uint8Array,
  float4e2m1: Uint8Array,
  int4: Uint8Array,
  uint4: Uint8Array,
  int2: Uint8Array,
  uint2: Uint8Array,
};

/** Elements in a byte, for types with fewer than 8 bits. @type {Record<string, number>} */
const PACKED = { float4e2m1: 2, int4: 2, uint4: 2, int2: 4, uint2: 4 };

const RAW = /^bfloat16$|^float[48]e|int[24]$/;

/** Tensor type of each typed array that determines one. */
const TYPES = /** @type {Map<Function, TensorType>} */ (new Map(/** @type {[Function, TensorType][]} */ ([
  [Float32Array, 'float32'], [Float64Array, 'float64'],
  [Int8Array, 'int8'], [Uint8Array, 'uint8'], [Uint8ClampedArray, 'uint8'],
  [Int16Array, 'int16'], [Uint16Array, 'uint16'], [Int32Array, 'int32'], [Uint32Array, 'uint32'],
  [BigInt64Array, 'int64'], [BigUint64Array, 'uint64'],
])));
if (Float16) TYPES.set(Float16, 'float16');

/**
 * Return the number of elements.
 * @param {readonly number[]} dims
 */
export function sizeOf(dims) {
  let size = 1;
  for (const [axis, dim] of dims.entries()) {
    if (!Number.isSafeInteger(dim)) throw new TypeError(`dims[${axis}] must be an integer, got ${dim}`);
    if (dim < 0) throw new RangeError(`dims[${axis}] must not be negative, got ${dim}`);
    size *= dim;
  }
  return size;
}

/**
 * Return the length of the array for this many elements.
 * @param {TensorType} type
 * @param {number} size
 */
export function lengthOf(type, size) {
  return Math.ceil(size / (PACKED[type] ?? 1));
}

/** Return the bits of an element, which are part of all type names but `bool`. @param {string} type */
export function bitsOf(type) {
  return type === 'bool' ? 8 : Number(/\d+/.exec(type)?.[0]);
}

/**
 * Return the type of a tensor constructed from `data` alone.
 * @param {unknown} data
 * @returns {TensorType}
 */
export function inferType(data) {
  if (Array.isArray(data)) {
    if (typeof data[0] === 'string') return 'string';
    if (typeof data[0] === 'boolean') return 'bool';
    throw new TypeError('an array of numbers needs its tensor type: new Tensor(type, data, dims)');
  }
  const type = TYPES.get(/** @type {object} */ (data)?.constructor);
  if (!type) throw wrong('data', 'a typed array, or an array of strings or booleans', data);
  return type;
}

/**
 * Convert `data` to the array of `type`; typed arrays are returned as they are, never copied.
 * @param {TensorType} type
 * @param {any} data
 * @returns {TensorData}
 */
export function convert(type, data) {
  if (type === 'string') {
    if (Array.isArray(data) && data.every((text) => typeof text === 'string')) return data;
    throw wrong('data of a string tensor', 'an array of strings', data);
  }
  const ArrayType = ARRAYS[type];
  if (!ArrayType) throw new TypeError(`unknown tensor type '${type}'; known: string, ${Object.keys(ARRAYS).join(', ')}`);
  if (data instanceof ArrayType) return data;
  if (Array.isArray(data)) {
    if (type === 'float16' && !Float16) throw new TypeError('this browser has no Float16Array: pass a Uint16Array of bits');
    if (RAW.test(type)) throw new TypeError(`a ${type} tensor needs its raw bits, not numbers`);
    if (type === 'int64' || type === 'uint64') return new ArrayType(data.map(BigInt));
    return new ArrayType(data.map(Number));
  }
  if (type === 'float16' && data instanceof Uint16Array) return new ArrayType(data.buffer, data.byteOffset, data.length);
  const bytes = data instanceof Uint8ClampedArray && (type === 'uint8' || type === 'bool');
  if (bytes || (data instanceof Int8Array && type === 'int4')) {
    return new Uint8Array(data.buffer, data.byteOffset, data.length);
  }
  throw new TypeError(`data: a ${type} tensor needs ${ArrayType.name}, got ${data?.constructor?.name ?? String(data)}`);
}
