// @ts-check
/**
 * Read Blobs sequentially.
 *
 * For a slice of an in-memory Blob, Chromium copies the rest of the item that the slice starts in, up to a whole part, and counts the copy
 * until the slice is garbage collected. When Blobs and copies exceed 500 MiB, slices cannot be read, while Blobs still can. So bytes passed
 * to the browser in parts are read part by part, each from its start. Slices of files take no memory.
 */

import { Buffers, filled, readerInto } from './reading.js';

/** Bytes up to which data is read and dropped rather than skipped: a new read takes a message to another process. */
const PASSED = 4 << 20;

/** Milliseconds without a read after which the stream is closed. */
const IDLE_MS = 1000;

/** The browser has lost a Blob's bytes, or the file of a Blob has changed on disk. */
export class Unreadable extends Error {
  name = 'Unreadable';

  /** @param {number} size @param {number} at @param {string} why */
  constructor(size, at, why) {
    super(`a Blob of ${size} bytes cannot be read at ${at}: ${why}`);
  }
}

/**
 * Return the index of the part with the byte `at`, and the part's offset; the number of parts if none has it.
 * @param {readonly Blob[]} parts
 * @param {number} at
 */
export function partWith(parts, at) {
  let [index, start] = [0, 0];
  for (; index < parts.length && at >= start + parts[index].size; index++) start += parts[index].size;
  return { index, start };
}

/**
 * Read parts sequentially from part `index` on, including parts that are added meanwhile.
 * @param {readonly Blob[]} parts
 * @param {number} index
 * @returns {ReturnType<typeof readerInto>}
 */
function readerThrough(parts, index) {
  /** @type {ReturnType<typeof readerInto> | null} */
  let open = null;
  let left = 0;
  let isOver = false;
  return {
    async read(block) {
      if (isOver || index >= parts.length) return block.subarray(0, 0);
      if (!open) {
        left = parts[index].size;
        open = readerInto(parts[index].stream());
      }
      const got = await open.read(block);
      if (isOver) return got;
      left -= got.length;
      if (!got.length && left) throw new Error(`it ends ${left} bytes too soon`);
      if (!left) {
        open.cancel().catch(() => {}); // the stream would report its end only when read again
        open = null;
        index += 1;
      }
      return got;
    },
    async cancel() {
      isOver = true;
      await open?.cancel();
    },
  };
}

/** @typedef {{at: number, bytes: Uint8Array<ArrayBuffer>}} Block */

/** Copies from Blobs with one block of read-ahead, through reused buffers. */
export class BlobReader {
  /** @type {ReturnType<typeof readerInto> | null} */
  #open = null;
  /** The block in memory. @type {Block} */
  #block = { at: 0, bytes: new Uint8Array() };
  /** The next block, while it is being read. @type {Promise<Block> | null} */
  #next = null;
  #buffers = new Buffers();
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #idle;
  #parts;
  /** Whether reading in the middle slices the Blob, which may be a file of many GB. */
  #isSliced;

  /** @param {Blob | readonly Blob[]} source a Blob, or a list of parts that may grow, read as one file */
  constructor(source) {
    this.#isSliced = source instanceof Blob;
    this.#parts = source instanceof Blob ? [source] : source;
  }

  /** Current size in bytes. */
  get size() {
    return this.#parts.reduce((sum, { size }) => sum + size, 0);
  }

  /**
   * Copy bytes from `at` on into `target` until it is full, after earlier requests.
   * @param {number} at
   * @param {Uint8Array} target
   */
  copyInto(at, target) {
    const turn = this.#turn.then(() => this.#copy(at, target)).catch((error) => this.#copyUncut(at, target, error));
    this.#turn = turn.catch(() => this.#close());
    return turn;
  }

  /** Retry without slices, from the Blob's start, for this and later reads. @param {number} at @param {Uint8Array} target @param {unknown} error */
  async #copyUncut(at, target, error) {
    if (!this.#isSliced || !(error instanceof Unreadable)) throw error;
    this.#isSliced = false;
    this.#close();
    await this.#copy(at, target);
  }

  /** @param {number} at @param {Uint8Array} target */
  async #copy(at, target) {
    clearTimeout(this.#idle);
    const { length } = target; // 0 if the memory is detached meanwhile
    for (let done = 0; done < length;) {
      const { at: start, bytes } = await this.#having(at + done);
      const part = bytes.subarray(at + done - start, at - start + length);
      target.set(part, done);
      done += part.length;
    }
    this.#idle = setTimeout(() => this.close(), IDLE_MS);
  }

  /** Close the stream after pending requests; a later request opens another. */
  close() {
    this.#turn = this.#turn.then(() => this.#close());
  }

  /** Return the block with this byte. @param {number} at @returns {Promise<Block>} */
  async #having(at) {
    const end = () => this.#block.at + this.#block.bytes.length;
    if (this.#open && at >= this.#block.at && at < end()) return this.#block;
    const { size } = this;
    if (at >= size) throw new RangeError(`byte ${at} of a Blob of ${size} bytes`);
    const { index, start } = this.#place(at);
    if (!this.#open || at < this.#block.at || start >= end() + PASSED) this.#begin(index, start);
    while (at >= end()) {
      const passed = this.#block.bytes;
      this.#block = await (this.#next ?? this.#read(end()));
      this.#buffers.give(passed.buffer);
      this.#next = end() < size ? this.#read(end()) : null;
    }
    return this.#block;
  }

  /** Return the part, and the position in it, from which a stream reaches the byte `at`. @param {number} at */
  #place(at) {
    return this.#isSliced ? { index: 0, start: at < PASSED ? 0 : at } : partWith(this.#parts, at);
  }

  /** @param {number} index @param {number} start */
  #begin(index, start) {
    this.#close();
    this.#open = this.#isSliced && start ? readerThrough([this.#parts[0].slice(start)], 0) : readerThrough(this.#parts, index);
    this.#block = { at: start, bytes: new Uint8Array() };
    this.#next = this.#read(start);
  }

  /** Read the block at `at`, the next one of the stream. @param {number} at @returns {Promise<Block>} */
  #read(at) {
    const { read } = /** @type {ReturnType<typeof readerInto>} */ (this.#open);
    const block = filled(read, this.#buffers.take()).then((bytes) => ({ at, bytes }), (error) => {
      throw new Unreadable(this.size, at, error.message);
    });
    block.catch(() => {}); // the caller that awaits it reports the error
    return block;
  }

  #close() {
    clearTimeout(this.#idle);
    this.#open?.cancel().catch(() => {});
    this.#open = null;
    this.#next = null;
    this.#buffers = new Buffers();
  }
}
