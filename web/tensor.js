// @ts-check
/** Tensors on the JavaScript side: a type, dimensions, and where the elements are: a typed array, or the GPU. */

import { imageToTensor, tensorToCanvas, tensorToImageData } from './image.js';

import { LARGE } from './pieces.js';

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
function sizeOf(dims) {
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
  const bytes = data instanceof Uint8ClampedArray && (type === 'uint8' || type === 'bool');
  if (bytes || (data instanceof Int8Array && type === 'int4')) {
    return new Uint8Array(data.buffer, data.byteOffset, data.length);
  }
  throw new TypeError(`a ${type} tensor needs ${ArrayType.name}, got ${data?.constructor?.name ?? typeof data}`);
}

/** @typedef {import('./plans/places.js').Place} Place */

/** Where this tensor's memory is, for sessions, or a GPUBuffer of the page's. @type {WeakMap<Tensor, Place | {buffer: GPUBuffer}>} */
const remotes = new WeakMap();

/**
 * The first rows of a tensor along an axis; null where its memory is Python's.
 * @param {Tensor} tensor
 * @param {number} axis
 * @param {number} rows
 * @returns {Tensor | null}
 */
export function firstRows(tensor, axis, rows) {
  const remote = remotes.get(tensor);
  if (!remote || !('number' in remote) || !remote.port.movable) return null;
  return fromWire(remote.port.cut(remote.number, axis, rows), remote.memory);
}

/** Whether sessions in Python have to move it first. @param {unknown} tensor */
export function isMovable(tensor) {
  const remote = tensor instanceof Tensor ? remotes.get(tensor) : undefined;
  return Boolean(remote && 'number' in remote && remote.port.movable);
}

const IN_WORKER = 'the tensor is on the GPU of the worker, whose buffers no other thread can have: use getData(), feed it '
  + "to a session, or have Python in this thread (import web/page.js instead of web/pyruntime.js, or set env.worker = false "
  + 'before the first session)';

/** Sessions may move a tensor to another buffer. @type {(tensor: Tensor, buffer: GPUBuffer | undefined) => void} */
export let moveTo;

/** @implements {PublicTensor} */
export class Tensor {
  /** @type {TensorData | null} */
  #data = null;
  /** @type {GPUBuffer | null} */
  #buffer = null;
  /** @type {import('./pyruntime.js').DataLocation} */
  #location = 'cpu';
  /** @type {(() => Promise<TensorData>) | undefined} */
  #download;
  /** @type {(() => void) | undefined} */
  #dispose;
  /** Gives the buffer where it takes work to have one. @type {(() => GPUBuffer | undefined) | undefined} */
  #settle;
  #busy = false;

  static {
    moveTo = (tensor, buffer) => {
      tensor.#buffer = buffer ?? null;
    };
  }

  /**
   * `new Tensor(type, data, dims)` or `new Tensor(data, dims)`; without `dims` the tensor has one dimension. Or one object
   * with `location`, `type`, `dims` and what holds the elements, as onnxruntime-web's factories pass it.
   * @param {any} first
   * @param {any} [second]
   * @param {readonly number[]} [third]
   */
  constructor(first, second, third) {
    if (typeof first === 'object' && first !== null && 'location' in first) {
      /** @type {TensorType} */
      this.type = first.type;
      /** @type {readonly number[]} */
      this.dims = [...first.dims];
      this.size = sizeOf(this.dims);
      this.#place(first);
      return;
    }
    const typed = typeof first === 'string';
    this.type = typed ? /** @type {TensorType} */ (first) : inferType(first);
    const data = convert(this.type, typed ? second : first);
    const dims = typed ? third : second;
    this.dims = [...(dims ?? [data.length])];
    this.size = sizeOf(this.dims);
    this.#data = this.#fitting(data);
  }

  /** @param {any} parameters */
  #place({ location, data, gpuBuffer, download, dispose, settle }) {
    if (!(this.type in ARRAYS)) throw new TypeError(`there is no tensor of type '${this.type}' in memory of that kind`);
    if (location === 'cpu-pinned') {
      this.#data = this.#fitting(convert(this.type, data));
    } else if (location === 'gpu-buffer') {
      this.#buffer = gpuBuffer ?? null;
      this.#download = download;
      this.#dispose = dispose;
      this.#settle = settle;
      if (gpuBuffer) remotes.set(this, { buffer: gpuBuffer });
    } else {
      throw new TypeError(`tensors are in 'cpu', 'cpu-pinned' or 'gpu-buffer' here, not in '${location}'`);
    }
    this.#location = location;
  }

  /** @param {TensorData} data */
  #fitting(data) {
    if (Math.ceil(this.size / (PACKED[this.type] ?? 1)) !== data.length) {
      throw new RangeError(`a ${this.type} tensor of [${this.dims}] has ${this.size} elements, got ${data.length}`);
    }
    return data;
  }

  get location() {
    return this.#location;
  }

  get data() {
    this.#refuseDisposed();
    if (!this.#data) throw new Error('the data is on the GPU: use `await tensor.getData()`, or `tensor.gpuBuffer`');
    return this.#data;
  }

  get gpuBuffer() {
    this.#refuseDisposed();
    if (this.#location === 'gpu-buffer') this.#buffer ??= this.#settle?.() ?? null;
    if (this.#buffer) return this.#buffer;
    throw new Error(this.#location === 'gpu-buffer' ? IN_WORKER : 'the data is not in a GPUBuffer');
  }

  /** @returns {never} */
  get texture() {
    throw new Error('the data is not in a WebGL texture: pyruntime computes with WebGPU');
  }

  /** @returns {never} */
  get mlTensor() {
    throw new Error('the data is not in an MLTensor: pyruntime computes with WebGPU');
  }

  /** @param {boolean} [releaseData] give the memory on the GPU back */
  async getData(releaseData = false) {
    this.#refuseDisposed();
    if (this.#location !== 'gpu-buffer') return this.data;
    if (!this.#download) throw new Error('the tensor was made from a GPUBuffer without `download`');
    if (this.#busy) throw new Error('the tensor is being downloaded');
    this.#busy = true;
    try {
      this.#data = await this.#download();
      this.#download = undefined;
      this.#location = 'cpu';
      if (releaseData) this.#letGo();
      return this.#data;
    } finally {
      this.#busy = false;
    }
  }

  dispose() {
    if (this.#busy) throw new Error('the tensor is being downloaded');
    this.#letGo();
    this.#download = undefined;
    this.#data = null;
    this.#location = 'none';
  }

  #letGo() {
    this.#dispose?.();
    this.#dispose = undefined;
    this.#buffer = null;
    remotes.delete(this);
  }

  #refuseDisposed() {
    if (this.#location === 'none') throw new Error('the tensor is disposed');
  }

  /**
   * The same data with other dimensions.
   * @param {readonly number[]} dims
   */
  reshape(dims) {
    this.#refuseDisposed();
    if (this.#location === 'gpu-buffer') throw new Error('a tensor on the GPU cannot be reshaped: use getData() first');
    return new Tensor(this.type, this.data, dims);
  }

  /** @param {import('./pyruntime.js').ToImageOptions} [options] */
  toImageData(options) {
    return tensorToImageData(this, options);
  }

  /** @param {import('./pyruntime.js').ToImageOptions} [options] */
  toDataURL(options) {
    return tensorToCanvas(this, options).toDataURL();
  }

  /**
   * @param {import('./pyruntime.js').ImageSource} image
   * @param {import('./pyruntime.js').FromImageOptions} [options]
   */
  static async fromImage(image, options) {
    const { type, data, dims } = await imageToTensor(image, options);
    return new Tensor(type, data, dims);
  }

  /**
   * @param {GPUBuffer} gpuBuffer
   * @param {import('./pyruntime.js').FromGpuBufferOptions} options
   */
  static fromGpuBuffer(gpuBuffer, { dataType = 'float32', dims, download, dispose }) {
    return new Tensor({ location: 'gpu-buffer', type: dataType, gpuBuffer, dims, download, dispose });
  }

  /**
   * @param {TensorType} type
   * @param {TypedArray} data
   * @param {readonly number[]} [dims]
   */
  static fromPinnedBuffer(type, data, dims) {
    return new Tensor({ location: 'cpu-pinned', type, data, dims: dims ?? [data.length] });
  }

  /** @returns {never} */
  static fromTexture() {
    throw new Error('Tensor.fromTexture: pyruntime computes with WebGPU; use Tensor.fromImage(canvas) or fromGpuBuffer');
  }

  /** @returns {never} */
  static fromMLTensor() {
    throw new Error('Tensor.fromMLTensor: pyruntime computes with WebGPU; use Tensor.fromGpuBuffer');
  }
}

let streams = 0;

/**
 * A value under way to Python: a tensor, an array of tensors (a sequence), a Map, null (an empty optional). Data are
 * copied, so that the caller's array stays usable.
 * @param {string} name
 * @param {unknown} value
 * @param {object} port who has Python
 * @param {boolean} sharesBuffers whether GPUBuffers can go there
 * @returns {import('./protocol.js').WireValue}
 */
export function toWire(name, value, port, sharesBuffers) {
  if (value === null) return null;
  if (Array.isArray(value) && value.every((item) => item instanceof Tensor)) {
    return { kind: 'sequence', values: value.map((item) => /** @type {any} */ (toWire(name, item, port, false))) };
  }
  if (value instanceof Map) return { kind: 'map', pairs: [...value] };
  if (!(value instanceof Tensor)) throw new TypeError(`input '${name}' must be a Tensor`);
  if (value.location === 'gpu-buffer') return remoteToWire(name, value, port, sharesBuffers);
  const { type, data } = value;
  return { type, dims: dimsOf(name, value), data: Array.isArray(data) ? data : bytesOf(data) };
}

/**
 * A tensor's dimensions, which anybody may have assigned.
 * @param {string} name
 * @param {Tensor} tensor
 */
function dimsOf(name, { type, dims, size }) {
  if (sizeOf(dims) !== size) throw new RangeError(`'${name}': a ${type} tensor of [${dims}] has not its ${size} elements`);
  return [...dims];
}

/**
 * A tensor whose bytes come behind the request, if it is large.
 * @param {string} name
 * @param {unknown} value
 * @returns {import('./protocol.js').WireStreamed | null}
 */
export function toStream(name, value) {
  if (!(value instanceof Tensor) || value.location === 'gpu-buffer') return null;
  const { type, data } = value;
  if (Array.isArray(data) || data.byteLength < LARGE) return null;
  return { type, dims: dimsOf(name, value), data: { stream: ++streams, nbytes: data.byteLength } };
}

/** A tensor's array, which must not be one of strings. @param {Tensor} tensor */
export function viewOf({ data }) {
  return /** @type {TypedArray} */ (data);
}

/**
 * A tensor on the GPU, by what Python knows it.
 * @param {string} name
 * @param {Tensor} tensor
 * @param {object} port
 * @param {boolean} sharesBuffers
 * @returns {import('./protocol.js').WireRemote}
 */
export function remoteToWire(name, tensor, port, sharesBuffers) {
  const remote = remotes.get(tensor);
  const { type } = tensor;
  const dims = dimsOf(name, tensor);
  if (!remote) throw new Error(`'${name}': the tensor is disposed`);
  if ('number' in remote) {
    if (remote.port.movable) return { kind: 'gpu', type, dims, gpu: remote.number, place: remote };
    if (remote.port !== port) throw new Error(`'${name}': the tensor was made by a worker that has ended`);
    return { kind: 'gpu', type, dims, gpu: remote.number };
  }
  if (!sharesBuffers) {
    throw new Error(`'${name}' is a GPUBuffer, which cannot go to the worker: have Python in this thread (import `
      + 'web/page.js instead of web/pyruntime.js, or set env.worker = false before the first session)');
  }
  return { kind: 'buffer', type, dims, buffer: remote.buffer };
}

/** @param {ArrayBufferView} view */
export function bytesOf(view) {
  return /** @type {ArrayBuffer} */ (view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}

/**
 * @typedef {object} Memory who has the tensors that stay on the GPU
 * @property {object} port
 * @property {(number: number) => Promise<any>} download
 * @property {(number: number) => void} dispose
 * @property {(number: number) => GPUBuffer | undefined} settle the buffer of a tensor alone
 */

/**
 * A value from Python.
 * @param {any} wire
 * @param {Memory} memory
 * @returns {any}
 */
export function fromWire(wire, memory) {
  if (wire === null) return null;
  if (wire.kind === 'sequence') return wire.values.map((/** @type {any} */ item) => fromWire(item, memory));
  if (wire.kind === 'map') {
    const names = [...fromWire(wire.names, memory).data];
    const values = fromWire(wire.values, memory).data;
    return new Map(names.map((name, i) => [name, values[i]]));
  }
  if (wire.kind === 'gpu') return remoteTensor(wire, memory);
  const { type, dims, data } = wire;
  return new Tensor(type, Array.isArray(data) ? data : new ARRAYS[type](data), dims);
}

/** Memory of tensors that nobody has any more. @type {FinalizationRegistry<() => void>} */
const forgotten = new FinalizationRegistry((dispose) => dispose());

/** @param {import('./protocol.js').WireRemote & {gpu: number}} wire @param {Memory} memory */
function remoteTensor({ type, dims, gpu, buffer, home }, memory) {
  const token = {};
  const there = home ?? memory;
  /** @type {Place} */
  const place = { memory: there, port: there.port, number: gpu, gone: false, users: 0 };
  const release = () => {
    place.gone = true;
    if (!place.users) place.memory.dispose(place.number);
  };
  const download = async () => /** @type {any} */ (fromWire(await place.memory.download(place.number), place.memory)).data;
  const dispose = () => {
    forgotten.unregister(token);
    release();
  };
  const settle = () => place.memory.settle(place.number);
  const tensor = new Tensor({ location: 'gpu-buffer', type, dims, gpuBuffer: buffer, download, dispose, settle });
  remotes.set(tensor, place);
  forgotten.register(tensor, release, token);
  return tensor;
}
