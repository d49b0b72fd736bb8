// @ts-check
/** Convert values between the API and messages to Python. `pyruntime/bridge/marshalling.py` is the counterpart, protocol.d.ts has the types. */

import { wrong } from './arguments.js';
import { ARRAYS, sizeOf } from './elements.js';
import { copied, LARGE } from '../net/pieces.js';
import { Tensor, remotes } from './tensor.js';

/** @typedef {import('../pyruntime.js').TypedArray} TypedArray */
/** @typedef {import('../plans/locations.js').Place} Place */

let streams = 0;

/**
 * Convert a value for Python: a tensor, an array of tensors (a sequence), a Map, or null (an empty optional). Data is copied, so that the
 * caller's array stays usable.
 * @param {string} name
 * @param {unknown} value
 * @param {object} port the host that runs Python
 * @param {boolean} sharesBuffers whether GPUBuffers can be passed to the host
 * @returns {import('./protocol.js').WireValue}
 */
export function toWire(name, value, port, sharesBuffers) {
  if (value === null) return null;
  if (Array.isArray(value) && value.every((item) => item instanceof Tensor)) {
    return { kind: 'sequence', values: value.map((item) => /** @type {any} */ (toWire(name, item, port, false))) };
  }
  if (value instanceof Map) return { kind: 'map', pairs: [...value] };
  if (!(value instanceof Tensor)) throw wrong(`input '${name}'`, 'a Tensor', value);
  if (value.location === 'gpu-buffer') return remoteToWire(name, value, port, sharesBuffers);
  const { type, data } = value;
  return { type, dims: dimsOf(name, value), data: Array.isArray(data) ? data : copied(data) };
}

/**
 * Return a tensor's dimensions, validated, since the page may have assigned others.
 * @param {string} name
 * @param {Tensor} tensor
 */
function dimsOf(name, { type, dims, size }) {
  if (sizeOf(dims) !== size) throw new RangeError(`'${name}': a ${type} tensor of [${dims}] has not its ${size} elements`);
  return [...dims];
}

/**
 * Return a large tensor as a stream, whose bytes follow the request; null for a small one.
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

/** Return a tensor's array, which must not hold strings. @param {Tensor} tensor */
export function viewOf({ data }) {
  return /** @type {TypedArray} */ (data);
}

/**
 * Convert a tensor on the GPU, by its number in the host or its GPUBuffer.
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
 * @typedef {object} Memory the host of tensors that stay on the GPU
 * @property {object} holder identity of the host
 * @property {(number: number) => Promise<any>} download
 * @property {(number: number) => void} dispose
 * @property {(number: number) => GPUBuffer | undefined} materialize moves a tensor to a buffer that holds it alone
 */

/**
 * Convert a value from Python.
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

/** Releases the memory of garbage-collected tensors. @type {FinalizationRegistry<() => void>} */
const forgotten = new FinalizationRegistry((dispose) => dispose());

/** @param {import('./protocol.js').WireRemote & {gpu: number}} wire @param {Memory} memory */
function remoteTensor({ type, dims, gpu, buffer, home }, memory) {
  const token = {};
  const there = home ?? memory;
  /** @type {Place} */
  const place = { memory: there, port: there.holder, number: gpu, gone: false, users: 0 };
  const release = () => {
    place.gone = true;
    if (!place.users) place.memory.dispose(place.number);
  };
  const download = async () => /** @type {any} */ (fromWire(await place.memory.download(place.number), place.memory)).data;
  const dispose = () => {
    forgotten.unregister(token);
    release();
  };
  const materialize = () => place.memory.materialize(place.number);
  const tensor = new Tensor({ location: 'gpu-buffer', type, dims, gpuBuffer: buffer, download, dispose, materialize });
  remotes.set(tensor, place);
  forgotten.register(tensor, release, token);
  return tensor;
}

/**
 * Return the first rows of a tensor along an axis; null if Python owns its memory.
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

/** Return whether a tensor has to be moved to Python before sessions there can use it. @param {unknown} tensor */
export function isMovable(tensor) {
  const remote = tensor instanceof Tensor ? remotes.get(tensor) : undefined;
  return Boolean(remote && 'number' in remote && remote.port.movable);
}
