// @ts-check
/**
 * A model's file, during its download and afterwards. Its bytes go to the browser's Blob storage, outside this process (on disk where
 * they are many); only the parts that a reader of the graph needs stay in memory. Used where Blobs can be read synchronously, as
 * Python does: in workers.
 */

import { BlobReader, Unreadable, partWith } from '../net/blobs.js';
import { Arrival } from './arrival.js';
import { around, partOf } from '../onnx/scanner.js';
import { again, outOfStorage } from '../net/parts.js';
import { withResolvers } from '../api/resolvers.js';

/** @typedef {import('../onnx/scanner.js').Segment} Segment */

export class ModelFile extends Arrival {
  /** What the browser has. @type {Blob[]} */
  #parts = [];
  #download;
  /** What a reader of the graph looks at, once it is known. @type {Segment[]} */
  #kept = [];
  /** Whether that was read ahead of the stream, and the server says that it is of this file. */
  #isAhead = false;
  #isVouchedFor = false;
  /** Whether it was given out before all had come. */
  #isGiven = false;
  /** Fulfilled when a reader of the graph finds what it looks at, or something that is no model. */
  #readable = withResolvers();
  #reader = new BlobReader(this.#parts);
  #syncReader = /** @type {any} */ (globalThis).FileReaderSync ? new /** @type {any} */ (globalThis).FileReaderSync() : null;

  /**
   * @param {string} url where it comes from
   * @param {{size: number | undefined, isExact: boolean}} known its size as far as that is known before the end, and whether that
   * counts the bytes that arrive
   * @param {Pick<import('./download.js').Opened, 'ahead'>} [download] what brings it
   */
  constructor(url, { size, isExact }, download = { ahead: async () => null }) {
    super(url, size, isExact);
    this.#download = download;
  }

  /** The browser has the next bytes. @param {Blob} part */
  handed(part) {
    this.#parts.push(part);
    this.arrived += part.size;
    this.wake();
  }

  /**
   * All that a reader of the graph looks at, read ahead of the stream or as it came, or what shows that this is no model.
   * @param {Segment[]} segments
   * @param {boolean} isAhead
   * @param {boolean} isVouchedFor
   */
  graph(segments, isAhead, isVouchedFor) {
    this.#kept = segments;
    this.#isAhead = isAhead;
    this.#isVouchedFor = isVouchedFor;
    this.#readable.resolve(undefined);
  }

  /**
   * All has come.
   * @param {Segment[]} segments
   * @param {boolean} agrees whether what was known of it before was right
   * @param {boolean} isCached
   */
  ended(segments, agrees, isCached) {
    this.#kept = segments;
    this.finish(this.#isGiven && !agrees, isCached);
  }

  /** Whether a prefetch reads parts that the stream has not brought. */
  get isReadAhead() {
    return !this.isComplete && this.#isAhead;
  }

  /** Fulfilled when everything has come that a reader of the graph looks at, or what it may refuse; or everything has come. */
  async readable() {
    await Promise.race([this.complete(), this.#readable.promise]);
    this.#isGiven = !this.isComplete;
  }

  /**
   * Fulfilled when it is certain that all that was read of it is of this file, and so is its size: the stream has brought it, or
   * the server says so. At the latest when everything has come.
   */
  async certain() {
    if (this.#isGiven && !this.#isVouchedFor && (this.#isAhead || !this.isExact)) await this.complete();
  }

  /**
   * Have these parts of it read ahead of the stream.
   * @param {readonly import('./prefetch.js').Range[]} wanted
   * @returns {Promise<boolean>} whether they are there
   */
  async ahead(wanted) {
    const found = await Promise.race([this.complete().then(() => null), this.#download.ahead(wanted)]);
    if (found) await this.there(found.from);
    if (found?.segments.length && !this.isComplete) {
      this.graph(found.segments, true, found.isVouchedFor);
      this.#isGiven = true;
    }
    return found !== null || this.isComplete;
  }

  /**
   * Copy the bytes at `at` into `target`, once they are there.
   * @param {number} at
   * @param {Uint8Array} target
   */
  async copyInto(at, target) {
    const kept = partOf(this.#kept, at, target.length);
    if (kept) {
      target.set(kept);
      return;
    }
    await this.there(at + target.length);
    const place = target.subarray(); // fails where its memory has gone away meanwhile
    for (let attempt = 0; ; attempt++) {
      try {
        await this.#reader.copyInto(at, place);
        return;
      } catch (error) {
        if (!(error instanceof Unreadable)) throw error;
        if (!(await again(attempt))) throw outOfStorage(this.url, this.arrived, error);
      }
    }
  }

  /**
   * `length` bytes at `at` without waiting; null where they have not come.
   * @param {number} at
   * @param {number} length
   * @returns {Uint8Array | null}
   */
  partNow(at, length) {
    const kept = partOf(this.#kept, at, length);
    if (kept || at + length > this.arrived) return kept;
    const bytes = new Uint8Array(length);
    let { index, start } = partWith(this.#parts, at);
    for (let to = 0; to < length; index++) {
      const part = this.#parts[index];
      const from = at + to - start;
      const read = this.#syncRead(part, from, Math.min(part.size, from + length - to));
      bytes.set(read, to);
      to += read.length;
      start += part.size;
    }
    return bytes;
  }

  /** The kept bytes around `at`, as far as they go; null where it is not among them. @param {number} at @returns {Segment | null} */
  kept(at) {
    return around(this.#kept, at);
  }

  /** The whole file in one buffer, once it has arrived. */
  async whole() {
    await this.complete();
    const bytes = new Uint8Array(this.arrived);
    await this.copyInto(0, bytes);
    return bytes.buffer;
  }

  /** Read no more of a part than is requested. @param {Blob} part @param {number} from @param {number} to */
  #syncRead(part, from, to) {
    if (to - from < part.size) {
      try {
        return new Uint8Array(this.#syncReader.readAsArrayBuffer(part.slice(from, to)));
      } catch {} // no slice can be made any more, see `blobs.js`
    }
    return new Uint8Array(this.#syncReader.readAsArrayBuffer(part)).subarray(from, to);
  }
}
