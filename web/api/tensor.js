// @ts-check
/** Tensor: a type, dimensions, and elements in a typed array or on the GPU. */

import { optionsOf, requireArray, wrong } from './arguments.js';
import { ARRAYS, convert, inferType, lengthOf, sizeOf } from './elements.js';
import { tensorToCanvas, tensorToImageData } from './image.js';

/** @typedef {import('../pyruntime.js').Tensor} PublicTensor */
/** @typedef {import('../pyruntime.js').TensorType} TensorType */
/** @typedef {import('../pyruntime.js').TensorData} TensorData */
/** @typedef {import('../pyruntime.js').TypedArray} TypedArray */
/** @typedef {import('../plans/locations.js').Place} Place */

/** Location of each tensor on the GPU: in a host, or a GPUBuffer of the page. @type {WeakMap<Tensor, Place | {buffer: GPUBuffer}>} */
export const remotes = new WeakMap();

const IN_WORKER = 'the tensor is on the GPU of the worker, whose buffers no other thread can have: use getData(), feed it '
  + "to a session, or have Python in this thread (import web/page.js instead of web/pyruntime.js, or set env.worker = false "
  + 'before the first session)';

/** Moves a tensor to another buffer, for sessions. @type {(tensor: Tensor, buffer: GPUBuffer | undefined) => void} */
export let moveTo;

/** @implements {PublicTensor} */
export class Tensor {
  /** @type {TensorData | null} */
  #data = null;
  /** @type {GPUBuffer | null} */
  #buffer = null;
  /** @type {import('../pyruntime.js').DataLocation} */
  #location = 'cpu';
  /** @type {(() => Promise<TensorData>) | undefined} */
  #download;
  /** @type {(() => void) | undefined} */
  #dispose;
  /** Moves the tensor to a buffer that holds it alone; called on demand. @type {(() => GPUBuffer | undefined) | undefined} */
  #materialize;
  #busy = false;

  static {
    moveTo = (tensor, buffer) => {
      tensor.#buffer = buffer ?? null;
    };
  }

  /**
   * Create a tensor: `new Tensor(type, data, dims)` or `new Tensor(data, dims)`; without `dims` it has one dimension. Also accepts one
   * object with `location`, `type`, `dims` and the elements, as onnxruntime-web's factories pass it.
   * @param {any} first
   * @param {any} [second]
   * @param {readonly number[]} [third]
   */
  constructor(first, second, third) {
    if (typeof first === 'object' && first !== null && 'location' in first) {
      /** @type {TensorType} */
      this.type = first.type;
      /** @type {readonly number[]} */
      this.dims = [...requireArray('dims', first.dims)];
      this.size = sizeOf(this.dims);
      this.#place(first);
      return;
    }
    const typed = typeof first === 'string';
    this.type = typed ? /** @type {TensorType} */ (first) : inferType(first);
    const data = convert(this.type, typed ? second : first);
    const dims = typed ? third : second;
    this.dims = [...requireArray('dims', dims ?? [data.length])];
    this.size = sizeOf(this.dims);
    this.#data = this.#fitting(data);
  }

  /** @param {any} parameters */
  #place({ location, data, gpuBuffer, download, dispose, materialize }) {
    if (!(this.type in ARRAYS)) throw new TypeError(`there is no tensor of type '${this.type}' in memory of that kind`);
    if (location === 'cpu-pinned') {
      this.#data = this.#fitting(convert(this.type, data));
    } else if (location === 'gpu-buffer') {
      this.#buffer = gpuBuffer ?? null;
      this.#download = download;
      this.#dispose = dispose;
      this.#materialize = materialize;
      if (gpuBuffer) remotes.set(this, { buffer: gpuBuffer });
    } else {
      throw new TypeError(`tensors are in 'cpu', 'cpu-pinned' or 'gpu-buffer' here, not in '${location}'`);
    }
    this.#location = location;
  }

  /** @param {TensorData} data */
  #fitting(data) {
    if (lengthOf(this.type, this.size) !== data.length) {
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
    if (this.#location === 'gpu-buffer') this.#buffer ??= this.#materialize?.() ?? null;
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

  /** @param {boolean} [releaseData] release the GPU memory */
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
      if (releaseData) this.#release();
      return this.#data;
    } finally {
      this.#busy = false;
    }
  }

  dispose() {
    if (this.#busy) throw new Error('the tensor is being downloaded');
    this.#release();
    this.#download = undefined;
    this.#data = null;
    this.#location = 'none';
  }

  #release() {
    this.#dispose?.();
    this.#dispose = undefined;
    this.#buffer = null;
    remotes.delete(this);
  }

  #refuseDisposed() {
    if (this.#location === 'none') throw new Error('the tensor is disposed');
  }

  /**
   * Return a tensor of the same data with other dimensions.
   * @param {readonly number[]} dims
   */
  reshape(dims) {
    this.#refuseDisposed();
    if (this.#location === 'gpu-buffer') throw new Error('a tensor on the GPU cannot be reshaped: use getData() first');
    return new Tensor(this.type, this.data, requireArray('dims', dims));
  }

  /** @param {import('../pyruntime.js').ToImageOptions} [options] */
  toImageData(options) {
    return tensorToImageData(this, options);
  }

  /** @param {import('../pyruntime.js').ToImageOptions} [options] */
  toDataURL(options) {
    return tensorToCanvas(this, options).toDataURL();
  }

  /**
   * @param {import('../pyruntime.js').ImageSource} image
   * @param {import('../pyruntime.js').FromImageOptions} [options]
   */
  static async fromImage(image, options) {
    const { imageToTensor } = await import('./pixels.js'); // rarely used
    const { type, data, dims } = await imageToTensor(image, options);
    return new Tensor(type, data, dims);
  }

  /**
   * @param {GPUBuffer} gpuBuffer
   * @param {import('../pyruntime.js').FromGpuBufferOptions} options
   */
  static fromGpuBuffer(gpuBuffer, options) {
    if (typeof gpuBuffer !== 'object' || gpuBuffer === null) throw wrong('gpuBuffer', 'a GPUBuffer', gpuBuffer);
    const { dataType = 'float32', dims, download, dispose } = optionsOf('options', options);
    return new Tensor({ location: 'gpu-buffer', type: dataType, gpuBuffer, dims, download, dispose });
  }

  /**
   * @param {TensorType} type
   * @param {TypedArray} data
   * @param {readonly number[]} [dims]
   */
  static fromPinnedBuffer(type, data, dims) {
    return new Tensor({ location: 'cpu-pinned', type, data, dims: dims ?? [requireArray('data', data).length] });
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
