// @ts-check
/**
 * A model's file while it arrives and afterwards. Its bytes go on to the browser, which keeps them outside this process (a
 * Blob, on disk where it is large); here stay what a reader of the graph looks at, and for a moment what came last, for those
 * who follow the download. Only where Blobs can be read synchronously, as Python does: in workers.
 */

import { BlobReader } from '../pieces.js';
import { Scanner } from './scanner.js';
import { openStream } from './stream.js';

/** Bytes that go to the browser together. */
const BLOCK = 8 << 20;

/** Bytes that stay here behind the last ones of the download. */
const RECENT = 16 << 20;

/** @typedef {import('./scanner.js').Segment} Segment */
/** @typedef {{end: number, resolve: () => void, reject: (error: unknown) => void}} Waiting */

/** Where in `segments` the one is that has the byte `at`; -1 where there is none. @param {Segment[]} segments @param {number} at */
function indexOf(segments, at) {
  let [low, high] = [0, segments.length - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    const segment = segments[middle];
    if (at < segment.at) high = middle - 1;
    else if (at >= segment.at + segment.bytes.length) low = middle + 1;
    else return middle;
  }
  return -1;
}

export class ModelFile {
  /** Bytes that have come. */
  arrived = 0;
  /** Whether `size` is final and all bytes are there. */
  isComplete = false;
  /** What ended it early. @type {{error: unknown} | null} */
  failure = null;
  #blob = new Blob();
  /** What the browser has not been given yet. @type {Uint8Array<ArrayBuffer>[]} */
  #pending = [];
  /** @type {Segment[]} */
  #recent = [];
  /** @type {Scanner | null} */
  #scanner;
  /** @type {Waiting[]} */
  #waiting = [];
  #reader = new BlobReader(this.#blob);
  #syncReader = /** @type {any} */ (globalThis).FileReaderSync ? new /** @type {any} */ (globalThis).FileReaderSync() : null;

  /**
   * Use `openFile`.
   * @param {string} url
   * @param {number | undefined} size
   * @param {boolean} isModel whether it is to be scanned
   */
  constructor(url, size, isModel) {
    this.url = url;
    this.size = size;
    this.#scanner = isModel ? new Scanner() : null;
  }

  /**
   * Take what arrives, to the end.
   * @param {AsyncIterable<Uint8Array<ArrayBuffer>>} chunks
   * @param {(loaded: number, total: number | undefined) => void} onProgress
   */
  async take(chunks, onProgress) {
    try {
      for await (const chunk of chunks) {
        this.#add(chunk);
        onProgress(this.arrived, this.size);
      }
      this.#flush();
      this.#scanner?.end();
      await this.#checkRoom();
      this.size = this.arrived;
      this.isComplete = true;
    } catch (error) {
      this.failure = { error };
    }
    this.#wake();
  }

  /** @param {Uint8Array<ArrayBuffer>} chunk */
  #add(chunk) {
    this.#recent.push({ at: this.arrived, bytes: chunk });
    this.#pending.push(chunk);
    this.#scanner?.push(chunk);
    this.arrived += chunk.length;
    if (this.arrived - this.#blob.size >= BLOCK) this.#flush();
    this.#wake();
  }

  #flush() {
    this.#blob = new Blob([this.#blob, ...this.#pending]);
    this.#pending = [];
    let drop = 0;
    while (drop < this.#recent.length && this.#recent[drop].at < this.arrived - RECENT) drop++;
    this.#recent.splice(0, drop);
  }

  /** What a browser has no room for it drops silently. Reading it tells. */
  async #checkRoom() {
    try {
      await this.#blob.slice(-1).arrayBuffer();
    } catch (error) {
      throw this.#noRoom(error);
    }
  }

  /** @param {unknown} error */
  #noRoom(error) {
    return new RangeError(`the browser has no room for ${this.url} (${this.arrived.toLocaleString('en')} bytes): `
      + `${/** @type {Error} */ (error).message}. Use a window that is not private, free disk space, or take a smaller model`);
  }

  #wake() {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const one of waiting) {
      if (this.failure) one.reject(this.failure.error);
      else if (this.isComplete || one.end <= this.arrived) one.resolve();
      else this.#waiting.push(one);
    }
  }

  /** Fulfilled when the bytes before `end` have come, or the file is at its end. @param {number} end @returns {Promise<void>} */
  there(end) {
    if (this.isComplete || end <= this.arrived) return Promise.resolve();
    if (this.failure) return Promise.reject(this.failure.error);
    return new Promise((resolve, reject) => { this.#waiting.push({ end, resolve, reject }); });
  }

  /** Fulfilled when everything has come. */
  complete() {
    return this.there(Infinity);
  }

  /**
   * `length` bytes at `at`, once they are there.
   * @param {number} at
   * @param {number} length
   * @returns {Promise<Uint8Array>}
   */
  async part(at, length) {
    await this.there(at + length);
    const here = this.#here(at, length);
    if (here) return here;
    if (at + length > this.#reader.blob.size) this.#reader = new BlobReader(this.#blob);
    try {
      return await this.#joined(at, length, (from, count) => this.#reader.part(from, count));
    } catch (error) {
      throw this.#noRoom(error);
    }
  }

  /**
   * `length` bytes at `at` without waiting; null where they have not come.
   * @param {number} at
   * @param {number} length
   * @returns {Uint8Array | null}
   */
  partNow(at, length) {
    if (at + length > this.arrived) return null;
    const here = this.#here(at, length);
    if (here) return here;
    const [fromBlob, after] = this.#split(at, length);
    const bytes = new Uint8Array(length);
    bytes.set(new Uint8Array(this.#syncReader.readAsArrayBuffer(this.#blob.slice(at, at + fromBlob))));
    if (after) bytes.set(after, fromBlob);
    return bytes;
  }

  /** The kept bytes around `at`, as far as they go; null where it is not among them. @param {number} at @returns {Segment | null} */
  kept(at) {
    const segments = this.#scanner?.segments ?? [];
    return segments[indexOf(segments, at)] ?? null;
  }

  /** Everything in one buffer. */
  async whole() {
    await this.complete();
    return this.#blob.arrayBuffer();
  }

  /** Nobody follows the download any more: keep no more than what is always kept. */
  settle() {
    this.#recent = [];
    this.#reader = new BlobReader(this.#blob);
  }

  /**
   * The bytes, where they are in memory. @param {number} at @param {number} length @returns {Uint8Array | null}
   */
  #here(at, length) {
    for (const segments of [this.#scanner?.segments ?? [], this.#recent]) {
      const first = indexOf(segments, at);
      if (first < 0) continue;
      const start = at - segments[first].at;
      if (start + length <= segments[first].bytes.length) return segments[first].bytes.subarray(start, start + length);
      if (segments === this.#recent) return this.#ofRecent(first, start, length);
    }
    return length ? null : new Uint8Array();
  }

  /** @param {number} first @param {number} start @param {number} length */
  #ofRecent(first, start, length) {
    const bytes = new Uint8Array(length);
    for (let index = first, to = 0; to < length; index++, start = 0) {
      const part = this.#recent[index].bytes.subarray(start, start + length - to);
      bytes.set(part, to);
      to += part.length;
    }
    return bytes;
  }

  /**
   * How many of these bytes are the Blob's, and those behind them.
   * @param {number} at
   * @param {number} length
   * @returns {[number, Uint8Array | null]}
   */
  #split(at, length) {
    const fromBlob = Math.min(length, this.#blob.size - at);
    return [fromBlob, fromBlob < length ? this.#here(at + fromBlob, length - fromBlob) : null];
  }

  /** @param {number} at @param {number} length @param {(at: number, length: number) => Promise<Uint8Array>} read */
  async #joined(at, length, read) {
    const [fromBlob, after] = this.#split(at, length);
    if (!after) return read(at, length);
    const bytes = new Uint8Array(length);
    bytes.set(after, fromBlob);
    bytes.set(await read(at, fromBlob));
    return bytes;
  }
}

/**
 * The file at `url`, which arrives from now on; fulfilled when its size is known, as far as that is before its end.
 * @param {string} url
 * @param {object} options
 * @param {boolean} options.isModel whether what a reader of the graph looks at is to be kept
 * @param {(loaded: number, total: number | undefined) => void} options.onProgress
 * @param {AbortSignal} [options.signal]
 */
export async function openFile(url, { isModel, onProgress, signal }) {
  const { size, chunks } = await openStream(url, signal);
  const file = new ModelFile(url, size, isModel);
  file.take(chunks, onProgress);
  if (size === undefined) await file.complete();
  return file;
}
