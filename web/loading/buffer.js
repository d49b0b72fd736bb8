// @ts-check
/**
 * A small file in memory while it arrives: what has come can be read, and a reader of a model's graph follows it. What that looks
 * at may also be known before (ahead.js).
 */

import { Arrival } from './arrival.js';
import { around, partOf } from './segments.js';

/** Who waits hears of bytes in steps of so many, or at the end: it may read much more than it waits for. */
const STEP = 1 << 20;

export class ArrivingBuffer extends Arrival {
  /** Whether bytes were given out ahead of the stream that were of another file. */
  wasMisread = false;
  #bytes;
  /** What a reader of the graph looks at, where it was read ahead of the stream. @type {import('./scanner.js').Segment[]} */
  #kept = [];
  #download;
  #tellReadable = () => {};
  /** Fulfilled when that is there. @type {Promise<void>} */
  #hasGraph = new Promise((resolve) => { this.#tellReadable = resolve; });
  /** What has come of a file whose size nobody knows. @type {Uint8Array<ArrayBuffer>[]} */
  #pieces = [];

  /**
   * @param {string} url where it comes from
   * @param {number | undefined} size in bytes, where that is certain
   * @param {Pick<import('./download.js').Opened, 'isVouchedFor'>} [download] what brings it
   */
  constructor(url, size, download = { isVouchedFor: async () => false }) {
    super();
    this.url = url;
    this.size = size;
    this.#download = download;
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

  /** All that a reader of the graph looks at, read ahead of the stream. @param {import('./scanner.js').Segment[]} segments */
  graph(segments) {
    if (this.isComplete || this.failure) return;
    this.#kept = segments;
    this.#tellReadable();
  }

  /** All has come. @param {boolean} [agrees] whether what was known of it before was right */
  ended(agrees = true) {
    if (this.size === undefined) this.#join();
    this.wasMisread = this.isReadAhead && !agrees;
    this.isComplete = !this.failure;
    this.#kept = [];
    this.wake();
  }

  /** Whether somebody reads what has not come with the stream. */
  get isReadAhead() {
    return !this.isComplete && this.#kept.length > 0;
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

  /** Wait until a reader of the graph can go on: the bytes before `end` are there, or all that it looks at is. @param {number} end */
  async readable(end) {
    await Promise.race([this.there(end), this.#hasGraph]);
  }

  /** The bytes around `at` that were read ahead, as far as they go; null where it is not among them. @param {number} at */
  readAhead(at) {
    return around(this.#kept, at);
  }

  /**
   * `length` bytes at `at` without waiting, where they lie; null where they have not come.
   * @param {number} at
   * @param {number} length
   * @returns {Uint8Array | null}
   */
  partNow(at, length) {
    if (this.size !== undefined && at + length <= this.arrived) return this.#bytes.subarray(at, at + length);
    return partOf(this.#kept, at, length);
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

  /** Fulfilled when it is certain that what was read of it is of this file: it has come, or the server says so. */
  async certain() {
    if (!this.isReadAhead) return;
    const complete = this.complete();
    const isVouchedFor = await Promise.race([complete.then(() => true), this.#download.isVouchedFor()]);
    if (!isVouchedFor) await complete;
  }

  /** Nothing is kept for those who follow it. */
  settle() {}
}
