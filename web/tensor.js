// @ts-check
/** Tensors on the JavaScript side: a type, dimensions, and a typed array (an array of strings for type `string`). */

/** @typedef {import('./pyruntime.js').Tensor} PublicTensor */
/** @typedef {import('./pyruntime.js').TensorType} TensorType */
/** @typedef {import('./pyruntime.js').TensorData} TensorData */
/** @typedef {import('./pyruntime.js').TypedArray} TypedArray */
/** @typedef {new (source: any, byteOffset?: number, length?: number) => TypedArray} TypedArrayConstructor */

/** Float16Array where the browser has it. @type {TypedArrayConstructor | undefined} */
const Float16 = /** @type {any} */ (globalThis).Float16Array;

/** Array type of each tensor type but `string`. @type {Record<string, TypedArrayConstructor>} */
const ARRAYS = {
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

/** Elements in a byte, of the types that have more than one. @type {Record<string, number>} */
const PACKED = { float4e2m1: 2, int4: 2, uint4: 2, int2: 4, uint2: 4 };

const RAW = /^bfloat16$|^float[48]e|int[24]$/;

/** Tensor type of each typed array that names one by itself. */
const TYPES = /** @type {Map<Function, TensorType>} */ (new Map(/** @type {[Function, TensorType][]} */ ([
  [Float32Array, 'float32'], [Float64Array, 'float64'],
  [Int8Array, 'int8'], [Uint8Array, 'uint8'], [Uint8ClampedArray, 'uint8'],
  [Int16Array, 'int16'], [Uint16Array, 'uint16'], [Int32Array, 'int32'], [Uint32Array, 'uint32'],
  [BigInt64Array, 'int64'], [BigUint64Array, 'uint64'],
])));
if (Float16) TYPES.set(Float16, 'float16');

/**
 * Number of elements.
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
 * @param {unknown} data
 * @returns {TensorType}
 */
function inferType(data) {
  if (Array.isArray(data)) {
    if (typeof data[0] === 'string') return 'string';
    if (typeof data[0] === 'boolean') return 'bool';
    throw new TypeError('an array of numbers needs its tensor type: new Tensor(type, data, dims)');
  }
  const type = TYPES.get(/** @type {object} */ (data)?.constructor);
  if (!type) throw new TypeError('data must be a typed array, or an array of strings or booleans');
  return type;
}

/**
 * `data` as the array type of `type`; typed arrays are taken as they are, never copied.
 * @param {TensorType} type
 * @param {any} data
 * @returns {TensorData}
 */
function convert(type, data) {
  if (type === 'string') {
    if (Array.isArray(data) && data.every((text) => typeof text === 'string')) return data;
    throw new TypeError('a string tensor needs an array of strings');
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
  if (data instanceof Uint8ClampedArray && (type === 'uint8' || type === 'bool')) {
    return new Uint8Array(data.buffer, data.byteOffset, data.length);
  }
  throw new TypeError(`a ${type} tensor needs ${ArrayType.name}, got ${data?.constructor?.name ?? typeof data}`);
}

/** @implements {PublicTensor} */
export class Tensor {
  /** @type {TensorData | null} */
  #data;

  /**
   * `new Tensor(type, data, dims)` or `new Tensor(data, dims)`; without `dims` the tensor has one dimension.
   * @param {any} first
   * @param {any} [second]
   * @param {readonly number[]} [third]
   */
  constructor(first, second, third) {
    const typed = typeof first === 'string';
    /** @type {TensorType} */
    this.type = typed ? /** @type {TensorType} */ (first) : inferType(first);
    const data = convert(this.type, typed ? second : first);
    const dims = typed ? third : second;
    /** @type {readonly number[]} */
    this.dims = Object.freeze([...(dims ?? [data.length])]);
    this.size = sizeOf(this.dims);
    if (Math.ceil(this.size / (PACKED[this.type] ?? 1)) !== data.length) {
      throw new RangeError(`a ${this.type} tensor of [${this.dims}] has ${this.size} elements, got ${data.length}`);
    }
    this.#data = data;
  }

  get location() {
    return this.#data ? /** @type {const} */ ('cpu') : /** @type {const} */ ('none');
  }

  get data() {
    if (!this.#data) throw new Error('the tensor is disposed');
    return this.#data;
  }

  /** @param {boolean} [releaseData] */
  async getData(releaseData = false) {
    const data = this.data;
    if (releaseData) this.dispose();
    return data;
  }

  dispose() {
    this.#data = null;
  }

  /**
   * The same data with other dimensions.
   * @param {readonly number[]} dims
   */
  reshape(dims) {
    return new Tensor(this.type, this.data, dims);
  }
}

/**
 * What crosses to the worker: bytes of its own, so that the caller's array stays usable.
 * @param {Tensor} tensor
 * @returns {import('./protocol.js').WireTensor}
 */
export function toWire(tensor) {
  const { type, dims, data } = tensor;
  return { type, dims: [...dims], data: Array.isArray(data) ? data : bytesOf(data) };
}

/** @param {ArrayBufferView} view */
export function bytesOf(view) {
  return /** @type {ArrayBuffer} */ (view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}

/** @param {import('./protocol.js').WireTensor} wire */
export function fromWire({ type, dims, data }) {
  return new Tensor(type, Array.isArray(data) ? data : new ARRAYS[type](data), dims);
}
