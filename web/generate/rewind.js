// @ts-check
/** A model of one Slice: the first rows of a cache, on the GPU. Written out here, for there is nothing to fetch. */

import { InferenceSession } from '../session.js';
import { Tensor } from '../tensor.js';
import { firstRows } from '../wire.js';

/** Numbers of ONNX's element types. @type {Record<string, number>} */
const ELEMENTS = { float32: 1, float16: 10, bfloat16: 16, uint8: 2, int8: 3 };
const INT64 = 7;

/** @param {number} value @returns {number[]} */
function varint(value) {
  return value < 128 ? [value] : [(value & 127) | 128, ...varint(Math.floor(value / 128))];
}

/** A field of bytes, of text or of a message. @param {number} number @param {readonly number[] | string} content */
function field(number, content) {
  const bytes = typeof content === 'string' ? [...new TextEncoder().encode(content)] : content;
  return [number * 8 + 2, ...varint(bytes.length), ...bytes];
}

/** @param {number} number @param {number} value */
function count(number, value) {
  return [number * 8, ...varint(value)];
}

/** A tensor among inputs and outputs. @param {string} name @param {number} element @param {readonly string[]} dims */
function valueInfo(name, element, dims) {
  const shape = dims.flatMap((dim) => field(1, field(2, dim)));
  return [...field(1, name), ...field(2, field(1, [...count(1, element), ...field(2, shape)]))];
}

/** y = x[..., :end, :], of four dimensions. @param {string} type of x */
function sliceModel(type) {
  const dims = ['batch', 'heads', 'length', 'size'];
  const node = [...['x', 'start', 'end', 'axis'].flatMap((name) => field(1, name)), ...field(2, 'y'), ...field(4, 'Slice')];
  const constant = (/** @type {string} */ name, /** @type {number} */ value) => (
    [...count(1, 1), ...count(2, INT64), ...field(7, [value]), ...field(8, name)]);
  const graph = [
    ...field(1, node), ...field(2, 'rewind'), ...field(5, constant('start', 0)), ...field(5, constant('axis', 2)),
    ...field(11, valueInfo('x', ELEMENTS[type], dims)), ...field(11, valueInfo('end', INT64, ['one'])),
    ...field(12, valueInfo('y', ELEMENTS[type], ['batch', 'heads', 'kept', 'size'])),
  ];
  const opset = [...field(1, ''), ...count(2, 17)];
  return new Uint8Array([...count(1, 8), ...field(7, graph), ...field(8, opset)]);
}

/** Shortens caches; one for all of a generator's. */
export class Rewinder {
  /** @type {Map<string, Promise<InferenceSession>>} */
  #sessions = new Map();
  #keepPlan;

  /** @param {any} keepPlan of its sessions */
  constructor(keepPlan) {
    this.#keepPlan = keepPlan;
  }

  /** @param {Tensor} cache `[batch, heads, length, size]` @param {number} length @returns {Promise<Tensor>} */
  async cut(cache, length) {
    const there = firstRows(cache, 2, length);
    if (there) return there;
    let made = this.#sessions.get(cache.type);
    if (!made) {
      made = InferenceSession.create(sliceModel(cache.type), {
        preferredOutputLocation: 'gpu-buffer', keepPlan: this.#keepPlan, extra: { 'pyruntime.host_work': 0 } });
      this.#sessions.set(cache.type, made);
    }
    const end = new Tensor('int64', BigInt64Array.of(BigInt(length)), [1]);
    return /** @type {Tensor} */ ((await (await made).run({ x: cache, end })).y);
  }

  async release() {
    const sessions = [...this.#sessions.values()];
    this.#sessions.clear();
    for (const made of sessions) await made.then((session) => session.release(), () => {});
  }
}
