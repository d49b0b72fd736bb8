// @ts-check
/** A pool of staging buffers. A new buffer costs more than filling it: three processes have to map its memory. */

import { drop, heldBytes, hold } from './held.js';
import { attend } from './waiting.js';

/** Largest total size of a device's staging buffers in each direction, and smallest size of an upload buffer, in bytes. */
const MOST_BYTES = 48 << 20;
const LEAST_BYTES = 3 << 19;

/** Milliseconds after which an unused staging buffer is destroyed. */
const IDLE_MS = 5_000;

/** Total bytes of what JavaScript has on a device that Python uses: staging buffers, logits that it selects tokens from. @param {GPUDevice} device */
export const totalHeldBytes = (device) => Object.values(heldBytes(device)).reduce((sum, nbytes) => sum + nbytes, 0);

/** The staging buffers of one device and direction. */
export class Pool {
  /** Unused buffers, the one that was returned last at the end. @type {GPUBuffer[]} */
  #free = [];
  /** When each was returned, in milliseconds. @type {WeakMap<GPUBuffer, number>} */
  #since = new WeakMap();
  #held = 0;
  /** @type {Map<number, {resolve: (buffer: GPUBuffer) => void, reject: (error: unknown) => void}[]>} */
  #waiting = new Map();
  /** Mapped or about to be, of uploads: no more than `#most` of them are made. */
  #made = 0;
  #most = LEAST_BYTES;
  /** Mapped ranges, which a browser gives once for each mapping. @type {WeakMap<GPUBuffer, Uint8Array<ArrayBuffer>>} */
  #bytes = new WeakMap();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #idle;

  /** @param {GPUDevice} device */
  constructor(device) {
    this.device = device;
  }

  /** Let uploads have buffers of so many bytes, within the limit. @param {number} nbytes */
  allow(nbytes) {
    this.#most = Math.max(this.#most, Math.min(nbytes, MOST_BYTES));
  }

  /** Bytes of a buffer for a piece of at most `nbytes`: at least three fit. @param {number} nbytes */
  pieceOf(nbytes) {
    let size = nbytes;
    while (3 * size > this.#most) size /= 2;
    return size;
  }

  /** @param {number} size @returns {GPUBuffer | undefined} */
  #pop(size) {
    const found = this.#free.findLastIndex((buffer) => buffer.size === size);
    if (found < 0) return undefined;
    this.#held -= size;
    return this.#free.splice(found, 1)[0];
  }

  /**
   * Return a buffer to the pool. Above the limit, the least recently used buffers are destroyed: after a large result, the small
   * buffers of the runs that follow are worth more.
   * @param {GPUBuffer} buffer
   */
  keep(buffer) {
    const waiting = this.#waiting.get(buffer.size)?.shift();
    if (waiting) {
      waiting.resolve(buffer);
      return;
    }
    if (this.#waits()) {
      this.discard(buffer);
      return;
    }
    this.#free.push(buffer);
    this.#held += buffer.size;
    this.#since.set(buffer, performance.now());
    while (this.#held > MOST_BYTES) this.#dropOldest();
    this.#idle ??= setTimeout(() => this.#shrink(), IDLE_MS);
  }

  /** Destroy the buffers that were not used for `IDLE_MS`, though others are. */
  #shrink() {
    this.#idle = undefined;
    const since = (/** @type {GPUBuffer} */ buffer) => /** @type {number} */ (this.#since.get(buffer));
    while (this.#free.length && performance.now() - since(this.#free[0]) >= IDLE_MS) this.#dropOldest();
    if (!this.#free.length) return;
    this.#idle = setTimeout(() => this.#shrink(), Math.max(1, IDLE_MS - (performance.now() - since(this.#free[0]))));
  }

  #dropOldest() {
    const buffer = /** @type {GPUBuffer} */ (this.#free.shift());
    this.#held -= buffer.size;
    this.#drop(buffer);
  }

  /** @param {GPUBuffer} buffer */
  #drop(buffer) {
    if (buffer.usage & GPUBufferUsage.MAP_WRITE) this.#made -= buffer.size;
    drop(this.device, buffer);
  }

  /** @param {GPUBufferDescriptor} descriptor */
  #new(descriptor) {
    return hold(this.device, this.device.createBuffer({ label: 'staging', ...descriptor }));
  }

  /** Destroy a buffer, and serve the requests that wait for capacity. @param {GPUBuffer} buffer */
  discard(buffer) {
    this.#drop(buffer);
    this.#serve();
  }

  #waits() {
    return [...this.#waiting.values()].some(({ length }) => length > 0);
  }

  /** Create buffers for waiting requests of other sizes, within the limit. */
  #serve() {
    for (const [size, list] of this.#waiting) {
      while (list.length && this.#fits(size)) list.shift()?.resolve(this.#make(size));
    }
  }

  /** @param {number} size */
  #fits(size) {
    return this.#made + size <= this.#most || !this.#made;
  }

  /** A new mapped buffer to write into. @param {number} size */
  #make(size) {
    const buffer = this.#new({ size, usage: GPUBufferUsage.MAP_WRITE | GPUBufferUsage.COPY_SRC, mappedAtCreation: true });
    this.#made += size;
    return buffer;
  }

  /** The mapped range of a buffer. @param {GPUBuffer} buffer */
  bytesOf(buffer) {
    const bytes = this.#bytes.get(buffer) ?? new Uint8Array(buffer.getMappedRange());
    this.#bytes.set(buffer, bytes);
    return bytes;
  }

  /** A buffer to read through. @param {number} size */
  toRead(size) {
    return this.#pop(size) ?? this.#new({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  }

  /** A mapped buffer: an unused one, or a new one within the limit. @param {number} size */
  #take(size) {
    const free = this.#pop(size);
    if (free) return free;
    while (!this.#fits(size) && this.#free.length) this.#dropOldest(); // all are of other sizes
    return this.#fits(size) ? this.#make(size) : null;
  }

  /** A mapped buffer to write into now; null at the limit, or where requests are waiting. @param {number} size */
  mapped(size) {
    return this.#waits() ? null : this.#take(size);
  }

  /** A mapped buffer to write into. @param {number} size @returns {Promise<GPUBuffer>} */
  async toWrite(size) {
    return this.#take(size) ?? attend(this.device, new Promise((resolve, reject) => {
      this.#waiting.set(size, [...this.#waiting.get(size) ?? [], { resolve, reject }]);
    }));
  }

  /** Map a used buffer again when the GPU has finished with it. @param {GPUBuffer} buffer */
  async recycle(buffer) {
    this.#bytes.delete(buffer);
    try {
      await buffer.mapAsync(GPUMapMode.WRITE);
      this.keep(buffer);
    } catch (error) {
      this.#drop(buffer);
      for (const list of this.#waiting.values()) for (const { reject } of list.splice(0)) reject(error);
    }
  }
}
