// @ts-check
/**
 * A model's file while it arrives and afterwards. Its bytes go on to the browser, which keeps them outside this process (a
 * Blob, on disk where it is large); here stay what a reader of the graph looks at, and for a moment what came last, for those
 * who follow the download. Only where Blobs can be read synchronously, as Python does: in workers.
 */

import { BlobReader, Unreadable, partWith } from '../blobs.js';
import { Arrival } from './arrival.js';
import { Parts, again, noRoom } from './parts.js';
import { around, indexOf, partOf } from './segments.js';

/** Bytes that stay here behind the last ones of the download. */
const RECENT = 16 << 20;

/** Milliseconds that a download takes which is waited for: planning is in the way of one so fast, in the same thread. */
const SOON_MS = 1000;

/** Milliseconds within which requests for parts of a file are answered, or so. */
const ANSWERED_MS = 300;

/** Milliseconds between two looks at that. */
const ASKED_MS = 50;

/** @typedef {import('./scanner.js').Segment} Segment */

export class ModelFile extends Arrival {
  /** Whether it was given out with a size, or bytes ahead of the stream, that were of another file. */
  wasMisread = false;
  #parts = new Parts();
  #began = performance.now();
  /** What came last, and is here. @type {Segment[]} */
  #recent = [];
  #isExact;
  #download;
  /** What a reader of the graph looks at, once it is known. @type {Segment[]} */
  #kept = [];
  /** Whether that was read ahead of the stream. */
  #isAhead = false;
  /** Whether it was given out before all had come. */
  #isGiven = false;
  #tellReadable = () => {};
  /** Fulfilled when a reader of the graph finds what it looks at, or something that is no model. @type {Promise<void>} */
  #hasGraph = new Promise((resolve) => { this.#tellReadable = resolve; });
  #reader = new BlobReader(this.#parts.list);
  #syncReader = /** @type {any} */ (globalThis).FileReaderSync ? new /** @type {any} */ (globalThis).FileReaderSync() : null;

  /**
   * @param {string} url where it comes from
   * @param {{size: number | undefined, isExact: boolean}} known its size as far as that is known before the end, and whether that
   * counts the bytes that arrive
   * @param {Pick<import('./download.js').Opened, 'ahead' | 'isVouchedFor' | 'isElsewhere'>} [download] what brings it
   */
  constructor(url, { size, isExact }, download = { ahead: async () => null, isVouchedFor: async () => false, isElsewhere: false }) {
    super();
    this.url = url;
    this.size = size;
    this.#isExact = isExact;
    this.#download = download;
  }

  /** The next bytes are in this thread. @param {Uint8Array<ArrayBuffer>} chunk */
  came(chunk) {
    this.#recent.push({ at: this.arrived, bytes: chunk });
    this.arrived += chunk.length;
    this.wake();
  }

  /** The browser has the next bytes; the chunks that came and are not looked at any more. @param {Blob} part */
  handed(part) {
    this.#parts.push(part);
    this.arrived = Math.max(this.arrived, this.#parts.nbytes);
    const done = Math.min(this.#parts.nbytes, this.arrived - RECENT);
    const keep = this.#recent.findIndex(({ at, bytes }) => at + bytes.length > done);
    const passed = this.#recent.splice(0, keep < 0 ? this.#recent.length : keep);
    this.wake();
    return passed.map(({ bytes }) => bytes);
  }

  /**
   * All that a reader of the graph looks at, read ahead of the stream or as it came, or what shows that this is no model.
   * @param {Segment[]} segments
   * @param {boolean} isAhead
   */
  graph(segments, isAhead) {
    this.#kept = segments;
    this.#isAhead = isAhead;
    this.#tellReadable();
  }

  /** All has come. @param {Segment[]} segments @param {boolean} agrees whether what was known of it before was right */
  ended(segments, agrees) {
    this.#kept = segments;
    this.wasMisread = this.#isGiven && !agrees;
    this.size = this.arrived;
    this.isComplete = true;
    this.wake();
  }

  /** Whether somebody reads what has not come with the stream. */
  get isReadAhead() {
    return !this.isComplete && this.#isAhead;
  }

  /**
   * Fulfilled when everything has come that a reader of the graph looks at, or what it may refuse, and the rest takes longer than
   * what is done meanwhile is slowed down by it; or everything has come.
   */
  async readable() {
    const complete = this.complete();
    await Promise.race([complete, this.#hasGraph]);
    if (!this.#download.isElsewhere) await this.#whileSoon(SOON_MS);
    this.#isGiven = !this.isComplete;
  }

  /**
   * Fulfilled when it is certain that all that was read of it is of this file, and so is its size: the stream has brought it, or
   * the server says so. At the latest when everything has come.
   */
  async certain() {
    if (!this.#isGiven || this.isComplete) return;
    if (this.#isExact && !this.#isAhead) return;
    await this.vouchedFor(this.#download);
  }

  /**
   * Have these parts of it read ahead of the stream, where that takes longer to bring them.
   * @param {readonly import('./ranges.js').Range[]} wanted
   * @returns {Promise<boolean>} whether they are there
   */
  async ahead(wanted) {
    await this.#whileSoon(this.#download.isElsewhere ? ANSWERED_MS : SOON_MS);
    if (this.isComplete) return true;
    const found = await Promise.race([this.complete().then(() => null), this.#download.ahead(wanted)]);
    if (found) await this.there(found.from);
    if (found?.segments.length && !this.isComplete) {
      this.#kept = found.segments;
      this.#isAhead = true;
      this.#isGiven = true;
    }
    return found !== null || this.isComplete;
  }

  /** Wait for all of it as long as that takes less than `ms`. @param {number} ms */
  async #whileSoon(ms) {
    const complete = this.complete();
    complete.catch(() => {}); // where nobody waits for it
    while (!this.isComplete && this.#remainingMs() < ms) {
      await Promise.race([complete, new Promise((resolve) => { setTimeout(resolve, ASKED_MS); })]);
    }
  }

  /** Milliseconds until all has come, at the rate so far. */
  #remainingMs() {
    return (performance.now() - this.#began) * ((this.size ?? 0) - this.arrived) / this.arrived;
  }

  /**
   * Copy the bytes at `at` into `target`, once they are there.
   * @param {number} at
   * @param {Uint8Array} target
   */
  async copyInto(at, target) {
    if (this.#copyHere(at, target)) return;
    await this.there(at + target.length);
    if (this.#copyHere(at, target)) return;
    await this.#fromParts(at, this.#copyAfter(at, target));
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
    if (this.#copyRecent(at, bytes)) return bytes;
    this.#fromPartsNow(at, this.#copyAfter(at, bytes));
    return bytes;
  }

  /** The kept bytes around `at`, as far as they go; null where it is not among them. @param {number} at @returns {Segment | null} */
  kept(at) {
    return around(this.#kept, at);
  }

  /** Everything in one buffer, once it is there. */
  async whole() {
    await this.complete();
    const bytes = new Uint8Array(this.arrived);
    await this.copyInto(0, bytes);
    return bytes.buffer;
  }

  /** Nobody follows the download any more: keep no more than what is always kept. */
  settle() {
    this.#recent = [];
  }

  /** Copy the bytes at `at` where they are in memory; whether they are. @param {number} at @param {Uint8Array} target */
  #copyHere(at, target) {
    const kept = partOf(this.#kept, at, target.length);
    if (kept) target.set(kept);
    return kept !== null || this.#copyRecent(at, target);
  }

  /** @param {number} at @param {Uint8Array} target */
  #copyRecent(at, target) {
    const first = indexOf(this.#recent, at);
    if (first < 0 || at + target.length > this.arrived) return false;
    for (let index = first, start = at - this.#recent[first].at, to = 0; to < target.length; index++, start = 0) {
      const part = this.#recent[index].bytes.subarray(start, start + target.length - to);
      target.set(part, to);
      to += part.length;
    }
    return true;
  }

  /**
   * Copy those of the bytes that the browser has not been given yet; the room for the others.
   * @param {number} at
   * @param {Uint8Array} target
   */
  #copyAfter(at, target) {
    const given = Math.max(0, Math.min(target.length, this.#parts.nbytes - at));
    if (given < target.length) this.#copyHere(at + given, target.subarray(given));
    return target.subarray(0, given);
  }

  /** @param {number} at @param {Uint8Array} target */
  async #fromParts(at, target) {
    for (let attempt = 0; ; attempt++) {
      try {
        await this.#reader.copyInto(at, target);
        return;
      } catch (error) {
        if (!(error instanceof Unreadable)) throw error;
        if (!(await again(attempt))) throw noRoom(this.url, this.arrived, error);
      }
    }
  }

  /** Copy without waiting, of a part no more than is asked for. @param {number} at @param {Uint8Array} target */
  #fromPartsNow(at, target) {
    let { index, start } = partWith(this.#parts.list, at);
    for (let to = 0; to < target.length; index++) {
      const part = this.#parts.list[index];
      const from = at + to - start;
      const bytes = this.#syncRead(part, from, Math.min(part.size, from + target.length - to));
      target.set(bytes, to);
      to += bytes.length;
      start += part.size;
    }
  }

  /** @param {Blob} part @param {number} from @param {number} to */
  #syncRead(part, from, to) {
    if (to - from < part.size) {
      try {
        return new Uint8Array(this.#syncReader.readAsArrayBuffer(part.slice(from, to)));
      } catch {} // no room for a slice any more, see `blobs.js`
    }
    return new Uint8Array(this.#syncReader.readAsArrayBuffer(part)).subarray(from, to);
  }
}
