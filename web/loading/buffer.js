// @ts-check
/** A small file in memory while it arrives: what has come can be read, and a reader of a model's graph follows it. */

import { Arrival } from './arrival.js';

/** Who waits hears of bytes in steps of so many, or at the end: it may read much more than it waits for. */
const STEP = 1 << 20;

export class ArrivingBuffer extends Arrival {
  /** As a `ModelFile` has it: nothing is read ahead of the stream, and no byte is of another file. */
  isReadAhead = false;
  wasMisread = false;
  #bytes;
  /** What has come of a file whose size nobody knows. @type {Uint8Array<ArrayBuffer>[]} */
  #pieces = [];

  /**
   * @param {string} url where it comes from
   * @param {number | undefined} size in bytes, where that is certain
   */
  constructor(url, size) {
    super();
    this.url = url;
    this.size = size;
    this.#bytes = new Uint8Array(size ?? 0);
  }

  /** The bytes, all of which are there. @returns {ArrayBuffer} */
  get buffer() {
    return this.#bytes.buffer;
  }

  /** The next bytes. @param {Uint8Array<ArrayBuffer>} chunk */
  came(chunk) {
    if (this.failure) return;
    if (this.size === undefined) this.#pieces.push(chunk);
    else if (this.arrived + chunk.length <= this.size) this.#bytes.set(chunk, this.arrived);
    else this.failed(new Error(`${this.url}: more bytes came than the ${this.size.toLocaleString('en')} that the server announced`));
    this.arrived += chunk.length;
    this.wake();
  }

  /** All has come. */
  ended() {
    if (this.size === undefined) this.#join();
    this.isComplete = !this.failure;
    this.wake();
  }

  #join() {
    this.size = this.arrived;
    this.#bytes = new Uint8Array(this.size);
    let to = 0;
    for (const piece of this.#pieces) {
      this.#bytes.set(piece, to);
      to += piece.length;
    }
    this.#pieces = [];
  }

  /** @param {number} end @override */
  there(end) {
    const most = this.size ?? Infinity;
    return super.there(end <= this.arrived || end > most ? end : Math.min(Math.max(end, this.arrived + STEP), most));
  }

  /**
   * `length` bytes at `at` without waiting, where they lie; null where they have not come.
   * @param {number} at
   * @param {number} length
   * @returns {Uint8Array | null}
   */
  partNow(at, length) {
    return this.size !== undefined && at + length <= this.arrived ? this.#bytes.subarray(at, at + length) : null;
  }

  /**
   * Copy the bytes at `at` into `target`, once they are there.
   * @param {number} at
   * @param {Uint8Array} target
   */
  async copyInto(at, target) {
    await super.there(at + target.length);
    target.set(this.#bytes.subarray(at, at + target.length));
  }

  /** Nothing is asked for ahead of the stream. */
  async ahead() {
    return false;
  }

  /** What was read of it is of this file. */
  async certain() {}

  /** Nothing is kept for those who follow it. */
  settle() {}
}
