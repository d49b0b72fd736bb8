// @ts-check
/**
 * A model file, during its download and afterwards. Its bytes are in the browser's Blob storage, outside this process (large ones on disk);
 * only the parts that a reader of the graph needs stay in memory. Used where Blobs can be read synchronously, as Python requires: in
 * workers.
 */

import { BlobReader, Unreadable, partWith } from '../net/blobs.js';
import { Arrival } from './arrival.js';
import { around, partOf } from '../onnx/scanner.js';
import { again, outOfStorage } from '../net/parts.js';
import { withResolvers } from '../api/resolvers.js';

/** @typedef {import('../onnx/scanner.js').Segment} Segment */

export class ModelFile extends Arrival {
  /** Parts of the file in Blob storage. @type {Blob[]} */
  #parts = [];
  #download;
  /** The parts that a reader of the graph needs, once they are known. @type {Segment[]} */
  #kept = [];
  /** Whether they were prefetched, and the server confirms that they are of this file. */
  #isAhead = false;
  #isVouchedFor = false;
  /** Whether a reader was given the file before it was complete. */
  #isGiven = false;
  /** Fulfilled when a reader finds the parts of the graph, or bytes that are not a model. */
  #readable = withResolvers();
  #reader = new BlobReader(this.#parts);
  #syncReader = /** @type {any} */ (globalThis).FileReaderSync ? new /** @type {any} */ (globalThis).FileReaderSync() : null;

  /**
   * @param {string} url address of the file
   * @param {{size: number | undefined, isExact: boolean}} known its size, if known before the end, and whether that counts the bytes that
   *   arrive
   * @param {Pick<import('./download.js').Opened, 'ahead'>} [download] its download
   */
  constructor(url, { size, isExact }, download = { ahead: async () => null }) {
    super(url, size, isExact);
    this.#download = download;
  }

  /** Add the next bytes, in Blob storage. @param {Blob} part */
  handed(part) {
    this.#parts.push(part);
    this.arrived += part.size;
    this.wake();
  }

  /**
   * Set the parts that a reader of the graph needs, prefetched or from the stream, or bytes that show that this is not a model.
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
   * The file has arrived completely.
   * @param {Segment[]} segments
   * @param {boolean} agrees whether the size and the prefetched bytes were right
   * @param {boolean} isCached
   */
  ended(segments, agrees, isCached) {
    this.#kept = segments;
    this.finish(this.#isGiven && !agrees, isCached);
  }

  /** Whether prefetched parts are ahead of the stream. */
  get isReadAhead() {
    return !this.isComplete && this.#isAhead;
  }

  /** Fulfilled when the parts of the graph, bytes that are not a model, or the whole file have arrived. */
  async readable() {
    await Promise.race([this.complete(), this.#readable.promise]);
    this.#isGiven = !this.isComplete;
  }

  /**
   * Fulfilled when it is certain that everything read so far, and the size, are of this file: by the stream, or by the server's validators.
   * At the latest when the file is complete.
   */
  async certain() {
    if (this.#isGiven && !this.#isVouchedFor && (this.#isAhead || !this.isExact)) await this.complete();
  }

  /**
   * Prefetch these parts.
   * @param {readonly import('./prefetch.js').Range[]} wanted
   * @returns {Promise<boolean>} whether they have arrived
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
   * Copy the bytes at `at` into `target`, when they have arrived.
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
    const place = target.subarray(); // throws if its memory was detached meanwhile
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
   * Return `length` bytes at `at` synchronously; null if they have not arrived.
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

  /** Return the kept segment around `at`; null if there is none. @param {number} at @returns {Segment | null} */
  kept(at) {
    return around(this.#kept, at);
  }

  /** Return the whole file in one buffer, when it has arrived. */
  async whole() {
    await this.complete();
    const bytes = new Uint8Array(this.arrived);
    await this.copyInto(0, bytes);
    return bytes.buffer;
  }

  /** Read a range of a part, and no more. @param {Blob} part @param {number} from @param {number} to */
  #syncRead(part, from, to) {
    if (to - from < part.size) {
      try {
        return new Uint8Array(this.#syncReader.readAsArrayBuffer(part.slice(from, to)));
      } catch {} // slicing fails, see `blobs.js`
    }
    return new Uint8Array(this.#syncReader.readAsArrayBuffer(part)).subarray(from, to);
  }
}
