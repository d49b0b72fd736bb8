// @ts-check
/**
 * A small file in memory while it arrives: what has come can be read, and a reader of a model's graph follows it. What that looks
 * at may also be known before (ahead.js).
 */

import { Arrival } from './arrival.js';
import { around, indexOf, partOf } from './segments.js';

/** Who waits hears of bytes in steps of so many, or at the end: it may read much more than it waits for. */
const STEP = 1 << 20;

export class ArrivingBuffer extends Arrival {
  /** Whether it was given out with a size, or bytes ahead of the stream, that were of another file. */
  wasMisread = false;
  /** What has come. @type {import('./scanner.js').Segment[]} */
  #pieces = [];
  /** What a reader of the graph looks at, where it was read ahead of the stream. @type {import('./scanner.js').Segment[]} */
  #kept = [];
  /** The same with nothing in the tensors, where that was known before. @type {import('./scanner.js').Segment[]} */
  #outline = [];
  #download;
  /** Whether `size` counts the bytes that arrive. */
  #isExact;
  #tellGraph = () => {};
  /** Fulfilled when what a reader of the graph looks at is there. @type {Promise<void>} */
  #hasGraph = new Promise((resolve) => { this.#tellGraph = resolve; });
  #tellOutline = () => {};
  /** Fulfilled when its outline is. @type {Promise<void>} */
  #hasOutline = new Promise((resolve) => { this.#tellOutline = resolve; });

  /**
   * @param {string} url where it comes from
   * @param {number | undefined} size in bytes, as far as that is known before the end
   * @param {Pick<import('./download.js').Opened, 'isExact' | 'isVouchedFor'>} [download] what brings it
   */
  constructor(url, size, download = { isExact: true, isVouchedFor: async () => false }) {
    super();
    this.url = url;
    this.size = size;
    this.#download = download;
    this.#isExact = download.isExact;
  }

  /** All bytes in one buffer, once they are there. @returns {ArrayBuffer} */
  get buffer() {
    const [first] = this.#pieces;
    if (this.#pieces.length !== 1 || first.bytes.length !== first.bytes.buffer.byteLength) {
      const bytes = new Uint8Array(this.arrived);
      this.copyNow(0, bytes);
      this.#pieces = [{ at: 0, bytes }];
    }
    return this.#pieces[0].bytes.buffer;
  }

  /** The next bytes, which stay where they are. @param {Uint8Array<ArrayBuffer>} chunk */
  came(chunk) {
    if (this.failure) return;
    if (this.#isExact && this.size !== undefined && this.arrived + chunk.length > this.size) {
      this.failed(new Error(`${this.url}: more bytes came than the ${this.size.toLocaleString('en')} that the server announced`));
    } else this.#pieces.push({ at: this.arrived, bytes: chunk });
    this.arrived += chunk.length;
    this.wake();
  }

  /** All that a reader of the graph looks at, read ahead of the stream. @param {import('./scanner.js').Segment[]} segments */
  graph(segments) {
    if (this.isComplete || this.failure) return;
    this.#kept = segments;
    this.#tellGraph();
  }

  /** The same before what is in tensors is known: a reader need not wait for that. @param {import('./scanner.js').Segment[]} segments */
  outline(segments) {
    if (this.isComplete || this.failure) return;
    this.#outline = segments;
    this.#tellOutline();
  }

  /** All has come. @param {boolean} [agrees] whether what was known of it before was right */
  ended(agrees = true) {
    this.wasMisread = (this.isReadAhead && !agrees) || (this.size ?? this.arrived) !== this.arrived;
    this.size = this.arrived;
    this.isComplete = !this.failure;
    this.#kept = [];
    this.#outline = [];
    this.wake();
  }

  /** Whether somebody reads what has not come with the stream. */
  get isReadAhead() {
    return !this.isComplete && (this.#kept.length > 0 || this.#outline.length > 0);
  }

  /** @param {number} end @override */
  there(end) {
    const most = this.size ?? Infinity;
    return super.there(end <= this.arrived || end > most ? end : Math.min(Math.max(end, this.arrived + STEP), most));
  }

  /** Wait until a reader of the graph can go on: the bytes before `end` are there, or all that it looks at is. @param {number} end */
  async readable(end) {
    await Promise.race([this.values(end), this.#hasOutline]);
  }

  /** Wait until what is in tensors can be read as well: the bytes before `end`, or all that anybody looks at. @param {number} end */
  async values(end) {
    await Promise.race([this.there(end), this.#hasGraph]);
  }

  /** For a reader of the graph, the bytes around `at` that were read ahead, as far as they go; null where it is not among them. @param {number} at */
  readAhead(at) {
    return around(this.#kept.length ? this.#kept : this.#outline, at);
  }

  /**
   * `length` bytes at `at` without waiting, where they lie; null where they have not come.
   * @param {number} at
   * @param {number} length
   * @returns {Uint8Array | null}
   */
  partNow(at, length) {
    const found = partOf(this.#pieces, at, length) ?? partOf(this.#kept, at, length);
    if (found || at + length > this.arrived || this.failure) return found;
    const bytes = new Uint8Array(length);
    this.copyNow(at, bytes);
    return bytes;
  }

  /**
   * Copy the bytes at `at` into `target`, once they are there.
   * @param {number} at
   * @param {Uint8Array} target
   */
  async copyInto(at, target) {
    await super.there(at + target.length);
    this.copyNow(at, target);
  }

  /** Copy the bytes at `at`, which are there, into `target`. @param {number} at @param {Uint8Array} target */
  copyNow(at, target) {
    for (let index = indexOf(this.#pieces, at), to = 0; to < target.length; index++) {
      const piece = this.#pieces[index];
      const start = at + to - piece.at;
      const part = piece.bytes.subarray(start, start + target.length - to);
      target.set(part, to);
      to += part.length;
    }
  }

  /** Nothing is asked for ahead of the stream. */
  async ahead() {
    return false;
  }

  /** Fulfilled when it is certain that what was read of it is of this file, and so is its size: it has come, or the server says so. */
  async certain() {
    if (this.isComplete || (this.#isExact && !this.isReadAhead)) return;
    await this.vouchedFor(this.#download);
  }

  /** Nothing is kept for those who follow it. */
  settle() {}
}
