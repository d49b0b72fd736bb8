// @ts-check
/** Tensors on the GPU whose memory JavaScript owns: those of sessions over plans. */

import { bitsOf, sizeOf } from '../api/elements.js';
import { drop, hold } from '../gpu/held.js';
import { play } from '../gpu/player.js';
import { caught, guarded } from '../gpu/staging.js';
import { Tensors, isFree, isLongest, takeSpare } from '../worker/tensors.js';

/**
 * @typedef {import('../worker/tensors.js').Memory} Memory
 * @typedef {import('../worker/tensors.js').Remote} Remote
 */

/** @param {string} type @param {readonly number[]} dims */
const bytesOf = (type, dims) => Math.ceil((sizeOf(dims) * bitsOf(type)) / 8);

/** @param {number} nbytes */
const padded = (nbytes) => Math.ceil(nbytes / 4) * 4;

/** @type {WeakMap<GPUDevice, OwnedTensors>} */
const made = new WeakMap();

/** The tensors of a device. @param {GPUDevice} device */
export function tensorsOf(device) {
  const tensors = made.get(device) ?? new OwnedTensors(device);
  made.set(device, tensors);
  return tensors;
}

export class OwnedTensors extends Tensors {
  /** Whether sessions in Python need these tensors moved there. */
  movable = true;
  /** Whether the device was lost. */
  lost = false;
  #last = 0;

  /** @param {GPUDevice} device */
  constructor(device) {
    /** @type {Map<number, GPUBuffer>} */
    const buffers = new Map();
    super({
      share_memory: () => { throw new Error('this tensor is not in Python'); },
      dispose: (id) => {
        const buffer = buffers.get(id);
        if (buffer) drop(device, buffer);
        buffers.delete(id);
      },
    });
    this.device = device;
    this.buffers = buffers;
    device.lost.then(() => { this.lost = true; });
  }

  /** Implements `Memory` of web/api/marshalling.js. */
  get holder() {
    return this;
  }

  /** @override @param {any} value of the wire */
  remoteOf({ place, gpu }) {
    return place?.port === this ? this.get(gpu) : undefined;
  }

  /** @override @param {Remote} remote */
  wire({ number, type, dims }) {
    return { kind: 'gpu', type, dims, gpu: number, home: this };
  }

  /**
   * Allocate memory.
   * @param {number} nbytes
   * @param {Memory['reserved']} reserved
   * @param {Memory[] | null} spares
   */
  #allocate(nbytes, reserved, spares) {
    const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
    const size = Math.max(256, Math.ceil(nbytes / 256) * 256);
    if (!(size <= this.device.limits.maxBufferSize)) throw new Error(`a tensor of ${nbytes} bytes is more than the device has buffers for`);
    const buffer = hold(this.device, this.device.createBuffer({ label: 'tensor', size, usage: STORAGE | COPY_SRC | COPY_DST }));
    this.#last += 1;
    this.buffers.set(this.#last, buffer);
    return this.owned(this.#last, buffer, reserved, spares);
  }

  /** @param {number} nbytes @param {Memory[]} spares */
  memoryFor(nbytes, spares) {
    return takeSpare(spares, nbytes) ?? this.#allocate(nbytes, null, spares);
  }

  /** Another tensor in the same memory, which keeps that alive during a run. @param {Remote} remote */
  again({ type, dims, memory, counted }) {
    const made = this.made(type, dims, memory);
    made.counted = counted;
    return made;
  }

  /**
   * Copy a tensor into memory with `rows` reserved along an axis, or into memory of its exact size.
   * @param {Remote} remote
   * @param {number} [axis]
   * @param {number} [rows]
   * @returns {Remote}
   */
  copy({ type, dims, memory, counted }, axis = -1, rows = 0) {
    const reserved = axis < 0 ? null : { axis, rows };
    const shape = reserved ? dims.map((dim, i) => (i === axis ? rows : dim)) : dims;
    if (reserved && memory.reserved && memory.reserved.axis !== axis) {
      const dense = this.copy({ number: 0, type, dims, memory, python: 0, counted });
      const made = this.copy(dense, axis, rows);
      this.dispose(dense.number);
      return made;
    }
    const target = this.#allocate(bytesOf(type, shape), reserved, null);
    const along = reserved?.axis ?? memory.reserved?.axis ?? 0;
    const blocks = reserved || memory.reserved ? sizeOf(dims.slice(0, along)) : 1;
    const row = (sizeOf(dims.slice(along + 1)) * bitsOf(type)) / 8;
    const nbytes = blocks > 1 || reserved || memory.reserved ? dims[along] * row : bytesOf(type, dims);
    const [from, to] = [memory.reserved?.rows ?? dims[along] ?? 1, reserved?.rows ?? dims[along] ?? 1];
    const encoder = this.device.createCommandEncoder();
    for (let n = 0; n < blocks && nbytes; n += 1) {
      encoder.copyBufferToBuffer(memory.buffer, n * from * row, target.buffer, n * to * row, padded(nbytes));
    }
    this.device.queue.submit([encoder.finish()]);
    const made = this.made(type, dims, target);
    made.counted = counted;
    return made;
  }

  /**
   * A tensor to which rows may be appended, in memory with `rows` of them: `remote` itself where no other tensor has rows there.
   * @param {Remote} remote
   * @param {number} axis
   * @param {number} rows
   */
  grown(remote, axis, rows) {
    const { reserved } = remote.memory;
    return reserved?.axis === axis && reserved.rows === rows && isLongest(remote) ? remote : this.copy(remote, axis, rows);
  }

  /**
   * A tensor whose rows from `first` on may be overwritten: `remote` itself where these are valid for no tensor.
   * @param {Remote} remote
   * @param {number} first
   */
  rewritten(remote, first) {
    return !remote.memory.reserved && isFree(remote, first) ? remote : this.copy(remote);
  }

  /**
   * The first rows of a tensor along an axis: in its memory where that has reserved rows along it, else a copy.
   * @param {number} number
   * @param {number} axis
   * @param {number} rows
   */
  cut(number, axis, rows) {
    const remote = this.get(number);
    if (!remote) throw new Error('the tensor is disposed');
    const { type, memory } = remote;
    const dims = remote.dims.map((dim, i) => (i === axis ? rows : dim));
    const isGrowing = memory.reserved?.axis === axis;
    return this.wire(isGrowing ? this.made(type, dims, memory)
      : this.copy({ ...remote, dims, memory: { ...memory, reserved: { axis, rows: remote.dims[axis] } } }));
  }

  /** A tensor's data. @param {number} number */
  async download(number) {
    const remote = this.get(number);
    if (!remote) throw new Error('the tensor is disposed');
    const { type, dims } = remote;
    const held = [this.again(remote)];
    try {
      const scopes = guarded(this.device, () => { if (remote.memory.reserved) held.push(this.copy(remote)); });
      const { buffer } = held[held.length - 1].memory;
      const [data] = await play(this.device, [], [], [{ buffer, offset: 0, nbytes: bytesOf(type, dims) }], []);
      await caught(scopes);
      return { type, dims, data };
    } finally {
      for (const { number: one } of held) this.dispose(one);
    }
  }

  /** Pages do not get the buffers of these tensors, as where Python is in a worker. @returns {GPUBuffer | undefined} */
  materialize() {
    return undefined;
  }
}
