// @ts-check
/** Pack the sampler's outputs for each token of a batch into records, and read them back. */

import { stage } from '../gpu/readback.js';

/** @typedef {{name: string, tensor: import('./tensors.js').Remote}[]} Made outputs of a sampler, contiguous in a record */

/** Limit of tokens in a batch, so that all staging buffers have the same size. */
export const MOST = 16;

/** @type {Record<string, {bytes: number, read: (view: DataView, at: number) => number}>} */
const TYPES = {
  int64: { bytes: 8, read: (view, at) => Number(view.getBigInt64(at, true)) },
  int32: { bytes: 4, read: (view, at) => view.getInt32(at, true) },
  float32: { bytes: 4, read: (view, at) => view.getFloat32(at, true) },
};

/** Records of one text. */
export class Records {
  #device;
  /** @type {{name: string, type: string, elements: number}[]} */
  #fields = [];

  /** @param {GPUDevice} device */
  constructor(device) {
    this.#device = device;
  }

  /** Bytes of a record. */
  get #stride() {
    return this.#fields.reduce((sum, { type, elements }) => sum + elements * TYPES[type].bytes, 0);
  }

  /** Return memory for the records of a batch. @param {Made} made the outputs of its first token */
  stage(made) {
    this.#fields = made.map(({ name, tensor: { type, dims } }) => (
      { name, type, elements: dims.reduce((product, dim) => product * dim, 1) }));
    const [{ tensor: { memory: { buffer } } }] = made;
    return stage(this.#device, [{ buffer, offset: 0, nbytes: MOST * this.#stride }])[0];
  }

  /** Return the copies that write one record. @param {Made} made @param {GPUBuffer} to @param {number} step index in the batch */
  copies(made, to, step) {
    let at = step * this.#stride;
    return made.map(({ tensor }, i) => {
      const { type, elements } = this.#fields[i];
      const nbytes = elements * TYPES[type].bytes;
      at += nbytes;
      return { from: tensor.memory.buffer, to, at: at - nbytes, nbytes };
    });
  }

  /** Parse the first `count` records. @param {ArrayBuffer} bytes @param {number} count */
  read(bytes, count) {
    const view = new DataView(bytes);
    /** @type {{ids: number[], logProbabilities: number[], top: {ids: number[], logProbabilities: number[]}[]}} */
    const found = { ids: [], logProbabilities: [], top: [] };
    let at = 0;
    for (let step = 0; step < count; step++) {
      /** @type {Record<string, number[]>} */
      const record = {};
      for (const { name, type, elements } of this.#fields) {
        const { bytes: width, read } = TYPES[type];
        record[name] = Array.from({ length: elements }, (_, i) => read(view, at + i * width));
        at += elements * width;
      }
      found.ids.push(record.ids[0]);
      if (record.log_probability) found.logProbabilities.push(record.log_probability[0]);
      if (record.top_ids) found.top.push({ ids: record.top_ids, logProbabilities: record.top_log_probabilities });
    }
    return found;
  }
}
