// @ts-check
/**
 * Read Blobs from front to back.
 *
 * Chromium copies the rest of the item that a slice of an in-memory Blob begins in, up to a whole part, and counts the copy until
 * the garbage collector takes the slice. When Blobs and copies come to 500 MiB, slices cannot be read, while the Blobs can. So bytes
 * that were given to the browser in parts are read part by part, each from its beginning. A slice of a file takes no memory.
 */

import { Buffers, filled, readerInto } from './reading.js';

/** Bytes that are read and dropped rather than skipped: starting a new read costs a message to another process. */
const PASSED = 4 << 20;

/** Milliseconds without a read after which nothing is kept open. */
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
 * The index of the part that has the byte `at`, and the part's offset; the number of parts where none has it.
 * @param {readonly Blob[]} parts
 * @param {number} at
 */
export function partWith(parts, at) {
  let [index, start] = [0, 0];
  for (; index < parts.length && at >= start + parts[index].size; index++) start += parts[index].size;
  return { index, start };
}

/**
 * Read parts sequentially, from one of them on; also parts that are added meanwhile.
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
        open.cancel().catch(() => {}); // that it is at its end it would say only when it is asked, and late
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

/** Copies out of Blobs, a block ahead, through buffers that are used again. */
export class BlobReader {
  /** @type {ReturnType<typeof readerInto> | null} */
  #open = null;
  /** The block in memory. @type {Block} */
  #block = { at: 0, bytes: new Uint8Array() };
  /** The next block, while it is read. @type {Promise<Block> | null} */
  #next = null;
  #buffers = new Buffers();
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #idle;
  #parts;
  /** Whether it is a Blob that is begun in the middle by slicing: it may be a file of many GB. */
  #isSliced;

  /** @param {Blob | readonly Blob[]} source a Blob, or a list of parts that may grow, read as one file */
  constructor(source) {
    this.#isSliced = source instanceof Blob;
    this.#parts = source instanceof Blob ? [source] : source;
  }

  /** Bytes there are now. */
  get size() {
    return this.#parts.reduce((sum, { size }) => sum + size, 0);
  }

  /**
   * Copy the bytes at `at` into `target`, as many as it holds, after earlier requests.
   * @param {number} at
   * @param {Uint8Array} target
   */
  copyInto(at, target) {
    const turn = this.#turn.then(() => this.#copy(at, target)).catch((error) => this.#copyUncut(at, target, error));
    this.#turn = turn.catch(() => this.#close());
    return turn;
  }

  /** Where a slice is what cannot be read, from the Blob's front, now and later. @param {number} at @param {Uint8Array} target @param {unknown} error */
  async #copyUncut(at, target, error) {
    if (!this.#isSliced || !(error instanceof Unreadable)) throw error;
    this.#isSliced = false;
    this.#close();
    await this.#copy(at, target);
  }

  /** @param {number} at @param {Uint8Array} target */
  async #copy(at, target) {
    clearTimeout(this.#idle);
    const { length } = target; // of memory that goes away meanwhile it would be 0
    for (let done = 0; done < length;) {
      const { at: start, bytes } = await this.#having(at + done);
      const part = bytes.subarray(at + done - start, at - start + length);
      target.set(part, done);
      done += part.length;
    }
    this.#idle = setTimeout(() => this.close(), IDLE_MS);
  }

  /** Close the reader after pending requests; a later request opens another. */
  close() {
    this.#turn = this.#turn.then(() => this.#close());
  }

  /** The block that has this byte. @param {number} at @returns {Promise<Block>} */
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

  /** Where a stream begins that comes to the byte `at`, and in which part. @param {number} at */
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

  /** The block at `at`, which is next. @param {number} at @returns {Promise<Block>} */
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
