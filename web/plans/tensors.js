// @ts-check
/** Tensors on the GPU whose memory is JavaScript's own: those of sessions over compiled models. */

import { bitsOf, sizeOf } from '../api/elements.js';
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

/** Those of a device. @param {GPUDevice} device */
export function tensorsOf(device) {
  const tensors = made.get(device) ?? new OwnedTensors(device);
  made.set(device, tensors);
  return tensors;
}

export class OwnedTensors extends Tensors {
  /** Tensors of these sessions can go to Python, where their memory is not. */
  movable = true;
  /** Whether the device is. */
  lost = false;
  #last = 0;

  /** @param {GPUDevice} device */
  constructor(device) {
    /** @type {Map<number, GPUBuffer>} */
    const buffers = new Map();
    super({
      share_memory: () => { throw new Error('Python knows nothing of this tensor'); },
      dispose: (id) => {
        buffers.get(id)?.destroy();
        buffers.delete(id);
      },
    });
    this.device = device;
    this.buffers = buffers;
    device.lost.then(() => { this.lost = true; });
  }

  /** Who has these tensors, as `Memory` of web/api/marshalling.js names it. */
  get port() {
    return this;
  }

  /** @override @param {any} value of the wire */
  remoteOf({ place, gpu, remote }) {
    return remote ?? (place?.port === this ? this.get(gpu) : undefined);
  }

  /**
   * New memory, of which nothing is known.
   * @param {number} nbytes
   * @param {Memory['room']} room
   * @param {Memory[] | null} spares
   */
  #allocate(nbytes, room, spares) {
    const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
    const size = Math.max(256, Math.ceil(nbytes / 256) * 256);
    if (!(size <= this.device.limits.maxBufferSize)) throw new Error(`a tensor of ${nbytes} bytes is more than the device has buffers for`);
    const buffer = this.device.createBuffer({ label: 'tensor', size, usage: STORAGE | COPY_SRC | COPY_DST });
    this.#last += 1;
    this.buffers.set(this.#last, buffer);
    return this.owned(this.#last, buffer, room, spares);
  }

  /** @param {number} nbytes @param {Memory[]} spares */
  memoryFor(nbytes, spares) {
    return takeSpare(spares, nbytes) ?? this.#allocate(nbytes, null, spares);
  }

  /** The same tensor once more, which keeps its memory while a run has it. @param {Remote} remote */
  again({ type, dims, memory, counted }) {
    const made = this.made(type, dims, memory);
    made.counted = counted;
    return made;
  }

  /**
   * A copy in memory with so many rows along an axis; without `rows` in memory of its own size.
   * @param {Remote} remote
   * @param {number} [axis]
   * @param {number} [rows]
   * @returns {Remote}
   */
  copy({ type, dims, memory, counted }, axis = -1, rows = 0) {
    const room = axis < 0 ? null : { axis, rows };
    const shape = room ? dims.map((dim, i) => (i === axis ? rows : dim)) : dims;
    if (room && memory.room && memory.room.axis !== axis) {
      const dense = this.copy({ number: 0, type, dims, memory, python: 0, counted });
      const made = this.copy(dense, axis, rows);
      this.dispose(dense.number);
      return made;
    }
    const target = this.#allocate(bytesOf(type, shape), room, null);
    const along = room?.axis ?? memory.room?.axis ?? 0;
    const blocks = room || memory.room ? sizeOf(dims.slice(0, along)) : 1;
    const row = (sizeOf(dims.slice(along + 1)) * bitsOf(type)) / 8;
    const nbytes = blocks > 1 || room || memory.room ? dims[along] * row : bytesOf(type, dims);
    const [from, to] = [memory.room?.rows ?? dims[along] ?? 1, room?.rows ?? dims[along] ?? 1];
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
   * A tensor of these rows in memory with `rows` of them, where those behind may be written: the same where nobody has.
   * @param {Remote} remote
   * @param {number} axis
   * @param {number} rows
   */
  grown(remote, axis, rows) {
    const { room } = remote.memory;
    return room?.axis === axis && room.rows === rows && isLongest(remote) ? remote : this.copy(remote, axis, rows);
  }

  /**
   * A tensor of which rows from `first` on may be written: the same where none of them count for anybody.
   * @param {Remote} remote
   * @param {number} first
   */
  rewritten(remote, first) {
    return !remote.memory.room && isFree(remote, first) ? remote : this.copy(remote);
  }

  /**
   * The first rows of a tensor along an axis: in its memory where that has room along it, else a copy.
   * @param {number} number
   * @param {number} axis
   * @param {number} rows
   */
  cut(number, axis, rows) {
    const remote = this.get(number);
    if (!remote) throw new Error('the tensor is disposed');
    const { type, memory } = remote;
    const dims = remote.dims.map((dim, i) => (i === axis ? rows : dim));
    const isGrowing = memory.room?.axis === axis;
    const { number: gpu } = isGrowing ? this.made(type, dims, memory)
      : this.copy({ ...remote, dims, memory: { ...memory, room: { axis, rows: remote.dims[axis] } } });
    return { kind: 'gpu', type, dims, gpu };
  }

  /** A tensor's data. @param {number} number */
  async download(number) {
    const remote = this.get(number);
    if (!remote) throw new Error('the tensor is disposed');
    const { type, dims } = remote;
    const held = [this.again(remote)];
    try {
      const scopes = guarded(this.device, () => { if (remote.memory.room) held.push(this.copy(remote)); });
      const { buffer } = held[held.length - 1].memory;
      const [data] = await play(this.device, [], [], [{ buffer, offset: 0, nbytes: bytesOf(type, dims) }], []);
      await caught(scopes);
      return { type, dims, data };
    } finally {
      for (const { number: one } of held) this.dispose(one);
    }
  }

  /** Buffers stay among sessions, as they do where Python is in a worker. @returns {GPUBuffer | undefined} */
  settle() {
    return undefined;
  }
}
