// @ts-check
/** Slice rows of caches on the GPU: the first rows, or the last ones with their keys rotated to other positions. */

import { InferenceSession } from '../api/session.js';
import { Tensor } from '../api/tensor.js';
import { firstRows } from '../api/marshalling.js';
import { modelOf } from '../onnx/writer.js';

const DIMS = ['batch', 'heads', 'length', 'size'];
const KEPT = ['batch', 'heads', 'kept', 'size'];
/** An end index beyond the rows of any cache. */
const END = 2 ** 40;

/** y = x[..., :end, :] @param {string} type of x */
function firstModel(type) {
  return modelOf('rewind', [['Slice', ['x', 'start', 'end', 'axis'], 'y']], { start: 0, axis: 2 },
    [['x', type, DIMS], ['end', 'int64', ['one']]], ['y', type, KEPT]);
}

/** y = x[..., first:, :] @param {string} type of x */
function lastModel(type) {
  return modelOf('trim', [['Slice', ['x', 'first', 'end', 'axis'], 'y']], { end: END, axis: 2 },
    [['x', type, DIMS], ['first', 'int64', ['one']]], ['y', type, KEPT]);
}

/** y = x[..., first:, :] · turn, in float32 @param {string} type of x */
function turnModel(type) {
  const plain = type === 'float32';
  return modelOf('turn_back', [
    ['Slice', ['x', 'first', 'end', 'axis'], 'rows'],
    ...(plain ? [] : /** @type {import('../onnx/writer.js').Node[]} */ ([['Cast', ['rows'], 'wide', 'float32']])),
    ['MatMul', [plain ? 'rows' : 'wide', 'turn'], plain ? 'y' : 'turned'],
    ...(plain ? [] : /** @type {import('../onnx/writer.js').Node[]} */ ([['Cast', ['turned'], 'y', type]])),
  ], { end: END, axis: 2 }, [['x', type, DIMS], ['first', 'int64', ['one']], ['turn', 'float32', ['size', 'size']]], ['y', type, KEPT]);
}

/** Slices the caches `[batch, heads, length, size]` of a generator. */
export class Rewinder {
  /** @type {Map<string, Promise<InferenceSession>>} */
  #sessions = new Map();
  #cachePlan;

  /** @param {any} cachePlan option `cachePlan` of its sessions */
  constructor(cachePlan) {
    this.#cachePlan = cachePlan;
  }

  /** Return the first rows. @param {Tensor} cache @param {number} length @returns {Promise<Tensor>} */
  async cut(cache, length) {
    return firstRows(cache, 2, length) ?? this.#run(firstModel, { x: cache, end: number(length) });
  }

  /** Return the rows from `first` on. @param {Tensor} cache @param {number} first */
  last(cache, first) {
    return this.#run(lastModel, { x: cache, first: number(first) });
  }

  /** Return the rows from `first` on, multiplied by `turn`. @param {Tensor} cache @param {number} first @param {Float32Array} turn `[size, size]` */
  turned(cache, first, turn) {
    const size = cache.dims[3];
    return this.#run(turnModel, { x: cache, first: number(first), turn: new Tensor('float32', turn, [size, size]) });
  }

  /** @param {(type: string) => Uint8Array} model @param {Record<string, Tensor>} feeds @returns {Promise<Tensor>} */
  async #run(model, feeds) {
    const key = `${model.name} ${feeds.x.type}`;
    let made = this.#sessions.get(key);
    if (!made) {
      made = InferenceSession.create(model(feeds.x.type), {
        preferredOutputLocation: 'gpu-buffer', cachePlan: this.#cachePlan, extra: { 'pyruntime.host_work': 0 } });
      this.#sessions.set(key, made);
    }
    return /** @type {Tensor} */ ((await (await made).run(feeds)).y);
  }

  async release() {
    const sessions = [...this.#sessions.values()];
    this.#sessions.clear();
    for (const made of sessions) await made.then((session) => session.release(), () => {});
  }
}

/** @param {number} value */
function number(value) {
  return new Tensor('int64', BigInt64Array.of(BigInt(value)), [1]);
}
