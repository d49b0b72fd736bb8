// @ts-check
/** Hold a small file in memory while it arrives; a reader of the graph may read what has arrived. */

import { Arrival } from './arrival.js';
import { around, partOf } from '../onnx/scanner.js';

/** Bytes between two notifications of a waiting reader, which is also notified at the end. Waking Python takes about 1 ms. */
const STEP = 1 << 20;

export class ArrivingBuffer extends Arrival {
  /** Nothing is prefetched. */
  isReadAhead = false;
  /** The chunks that have arrived. @type {import('../onnx/scanner.js').Segment[]} */
  #pieces = [];

  /** All bytes in one buffer, when they have arrived. @returns {ArrayBuffer} */
  get buffer() {
    const [first] = this.#pieces;
    if (this.#pieces.length !== 1 || first.bytes.length !== first.bytes.buffer.byteLength) {
      const bytes = new Uint8Array(this.arrived);
      this.copyNow(0, bytes);
      this.#pieces = [{ at: 0, bytes }];
    }
    return this.#pieces[0].bytes.buffer;
  }

  /** Add the next bytes, without a copy. @param {Uint8Array<ArrayBuffer>} chunk */
  came(chunk) {
    this.#pieces.push({ at: this.arrived, bytes: chunk });
    this.arrived += chunk.length;
    this.wake();
  }

  /** The file has arrived completely. @param {import('../onnx/scanner.js').Segment[]} _segments @param {boolean} _agrees @param {boolean} isCached */
  ended(_segments, _agrees, isCached) {
    this.finish((this.size ?? this.arrived) !== this.arrived, isCached);
  }

  /** @param {number} end @override */
  there(end) {
    const most = this.size ?? Infinity;
    return super.there(end <= this.arrived || end > most ? end : Math.min(Math.max(end, this.arrived + STEP), most));
  }

  /**
   * Return `length` bytes at `at` synchronously, without a copy; null if they have not arrived.
   * @param {number} at
   * @param {number} length
   * @returns {Uint8Array | null}
   */
  partNow(at, length) {
    const found = partOf(this.#pieces, at, length);
    if (found || at + length > this.arrived || this.failure) return found;
    const bytes = new Uint8Array(length);
    this.copyNow(at, bytes);
    return bytes;
  }

  /**
   * Copy the bytes at `at` into `target`, when they have arrived.
   * @param {number} at
   * @param {Uint8Array} target
   */
  async copyInto(at, target) {
    await super.there(at + target.length);
    this.copyNow(at, target);
  }

  /** Copy the bytes at `at`, which have arrived, into `target`. @param {number} at @param {Uint8Array} target */
  copyNow(at, target) {
    for (let to = 0; to < target.length;) {
      const piece = /** @type {import('../onnx/scanner.js').Segment} */ (around(this.#pieces, at + to));
      const start = at + to - piece.at;
      const part = piece.bytes.subarray(start, start + target.length - to);
      target.set(part, to);
      to += part.length;
    }
  }

  /** Nothing is prefetched. */
  async ahead() {
    return false;
  }

  /** Fulfilled when the size is certain. */
  async certain() {
    if (!this.isExact) await this.complete();
  }
}
