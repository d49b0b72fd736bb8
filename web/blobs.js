// @ts-check
/** Blobs, read from front to back. */

import { Buffers, filled, readerInto } from './reading.js';

/** Bytes that are read past rather than begun behind: to begin costs a message to another process. */
const PASSED = 4 << 20;

/** Milliseconds without a read after which nothing is kept open. */
const IDLE_MS = 1000;

/** The browser has lost what it was given, or somebody has changed the file behind it. */
export class Unreadable extends Error {
  name = 'Unreadable';

  /** @param {Blob} blob @param {number} at @param {string} why */
  constructor(blob, at, why) {
    super(`a Blob of ${blob.size} bytes cannot be read at ${at}: ${why}`);
  }
}

/** @typedef {{at: number, bytes: Uint8Array<ArrayBuffer>}} Block */

/** Copies out of a Blob, a block ahead, through buffers that are used again. */
export class BlobReader {
  /** @type {ReturnType<typeof readerInto> | null} */
  #open = null;
  /** What is here. @type {Block} */
  #block = { at: 0, bytes: new Uint8Array() };
  /** What is being read, behind it. @type {Promise<Block> | null} */
  #next = null;
  #buffers = new Buffers();
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #idle;

  /** @param {Blob} blob */
  constructor(blob) {
    this.blob = blob;
  }

  /**
   * Copy the bytes at `at` into `target`, as many as it takes, when those who asked before have theirs.
   * @param {number} at
   * @param {Uint8Array} target
   */
  copyInto(at, target) {
    const turn = this.#turn.then(() => this.#copy(at, target));
    this.#turn = turn.catch(() => this.#close());
    return turn;
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

  /** Keep nothing open, once those who asked have theirs; who asks later begins anew. */
  close() {
    this.#turn = this.#turn.then(() => this.#close());
  }

  /** The block that has this byte. @param {number} at @returns {Promise<Block>} */
  async #having(at) {
    if (at >= this.blob.size) throw new RangeError(`byte ${at} of a Blob of ${this.blob.size} bytes`);
    const end = () => this.#block.at + this.#block.bytes.length;
    if (!this.#open || at < this.#block.at || at >= end() + PASSED) this.#begin(at);
    while (at >= end()) {
      const passed = this.#block.bytes;
      this.#block = await /** @type {Promise<Block>} */ (this.#next);
      if (!this.#block.bytes.length) throw new Unreadable(this.blob, end(), 'it ends there');
      this.#buffers.give(passed.buffer);
      this.#ahead(end());
    }
    return this.#block;
  }

  /** @param {number} at */
  #begin(at) {
    this.#close();
    this.#open = readerInto(this.blob.slice(at).stream());
    this.#block = { at, bytes: new Uint8Array() };
    this.#ahead(at);
  }

  /** @param {number} at */
  #ahead(at) {
    const { read } = /** @type {ReturnType<typeof readerInto>} */ (this.#open);
    this.#next = filled(read, this.#buffers.take()).then((bytes) => ({ at, bytes }), (error) => {
      throw new Unreadable(this.blob, at, error.message);
    });
    this.#next.catch(() => {}); // heard by who waits for it
  }

  #close() {
    clearTimeout(this.#idle);
    this.#open?.cancel().catch(() => {});
    this.#open = null;
    this.#buffers = new Buffers();
  }
}
