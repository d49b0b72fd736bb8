// @ts-check
/**
 * Download a file into memory, or pass it on to the browser's Blob storage, outside this process. Runs in the reader's thread or in
 * the download worker (downloader.js).
 */

import { ReadAhead } from './prefetch.js';
import { Requests } from './requests.js';
import { Scanner } from '../onnx/scanner.js';
import { blobOf, outOfStorage } from '../net/parts.js';
import { openStream } from '../net/stream.js';
import { Buffers } from '../net/reading.js';
import { strongTag } from '../net/tags.js';

/** Bytes that go to the browser together. */
const BLOCK = 8 << 20;

/** Bytes of a file in memory that are handed on together. */
const PIECE = 1 << 18;

/** @typedef {import('../onnx/scanner.js').Segment} Segment */

/**
 * Parts of a file that were read ahead of the stream, where that has come to `from`; and whether the server says that they are of
 * this very file.
 * @typedef {{from: number, segments: Segment[], isVouchedFor: boolean}} Ahead
 */

/**
 * Listener of a download. Calls come in file order; `ended` or `failed` is the last.
 * @typedef {object} Receiver
 * @property {(loaded: number, total: number | undefined) => void} [progress] bytes that have come, and all as far as that is known
 * @property {(chunk: Uint8Array<ArrayBuffer>) => void} [came] the next bytes of a file in memory
 * @property {(part: Blob) => void} [handed] the browser has the next bytes
 * @property {(segments: Segment[], isAhead: boolean, isVouchedFor: boolean) => void} [graph] all that a reader of the graph looks at,
 * or that it is no model; read ahead of the stream, or as it came
 * @property {(segments: Segment[], agrees: boolean, isCached: boolean) => void} ended the file is complete; what was reported before of the file
 * agrees with it; it came from the browser's cache
 * @property {(error: unknown) => void} failed
 */

/**
 * A file of which the server has answered.
 * @typedef {object} Opened
 * @property {number | undefined} size in bytes where the server gives it
 * @property {boolean} isExact whether that counts the bytes that arrive
 * @property {string} tag its strong ETag; '' where it has none
 * @property {string} validator what changes with the file; '' where the server gives nothing
 * @property {(receiver: Receiver) => void} pieces brings it piece by piece, which are the receiver's
 * @property {(receiver: Receiver) => void} into brings it to the browser
 * @property {(wanted: readonly import('./prefetch.js').Range[]) => Promise<Ahead | null>} ahead reads these parts of a file of weights ahead,
 * once; null where that cannot be
 * @property {boolean} isElsewhere whether another thread carries it
 */

/**
 * Request the file at `url`.
 * @param {string} url
 * @param {boolean} isModel whether to keep the parts of the file that the graph is read from
 * @param {AbortSignal} signal
 * @param {RequestCache} [cache]
 * @returns {Promise<Opened>}
 */
export async function openFile(url, isModel, signal, cache) {
  const { size, isExact, response, validator, chunks, isCached } = await openStream(url, signal, cache);
  const tag = strongTag(response);
  /** @type {Download | undefined} */
  let download;
  return {
    size,
    isExact,
    tag,
    validator,
    async pieces(receiver) {
      let loaded = 0;
      try {
        for await (const chunk of chunks(new Buffers(PIECE))) {
          loaded += chunk.length;
          receiver.progress?.(loaded, size);
          receiver.came?.(chunk);
        }
        receiver.ended([], true, isModel && await isCached());
      } catch (error) {
        receiver.failed(error);
      }
    },
    into(receiver) {
      const requests = size === undefined ? null : new Requests(response.url || url, { size, isExact, tag }, signal);
      download = new Download(url, size, receiver, requests, isModel ? new Scanner(isExact ? size : undefined) : null);
      download.take(chunks(download.buffers), isModel ? isCached : undefined);
    },
    ahead: async (wanted) => download?.readAhead(wanted) ?? null,
    isElsewhere: false,
  };
}

export class Download {
  /** Which chunks may be in; they are given back. */
  buffers = new Buffers();
  /** What the browser has not been given yet. @type {Uint8Array<ArrayBuffer>[]} */
  #pending = [];
  #pendingBytes = 0;
  /** Fulfilled when the browser has what it was given. @type {Promise<void>} */
  #handedOver = Promise.resolve();
  /** End of the bytes that a reader waits for; it gets them when the browser has them. */
  #due = Infinity;
  #ahead;

  /**
   * @param {string} url
   * @param {number | undefined} size
   * @param {Receiver} receiver
   * @param {Requests | null} [requests] for parts that are wanted before they come
   * @param {Scanner | null} [scanner] of a model
   */
  constructor(url, size, receiver, requests = null, scanner = null) {
    this.url = url;
    this.size = size;
    this.receiver = receiver;
    this.scanner = scanner;
    this.#ahead = new ReadAhead(requests, scanner, receiver);
  }

  /**
   * Take what arrives, to the end.
   * @param {AsyncIterable<Uint8Array<ArrayBuffer>>} chunks
   * @param {() => Promise<boolean>} [isCached]
   */
  async take(chunks, isCached = async () => false) {
    try {
      for await (const chunk of chunks) {
        this.#pending.push(chunk);
        this.#pendingBytes += chunk.length;
        this.#ahead.push(chunk);
        this.receiver.progress?.(this.#ahead.at, this.size);
        if (this.#pendingBytes >= BLOCK) await this.#handedOver;
        if (this.#pendingBytes >= BLOCK || this.#ahead.at >= this.#due) this.#flush();
      }
      this.#flush();
      await this.#handedOver;
      this.#ahead.end();
      const { agrees } = this.#ahead;
      const segments = agrees ? this.scanner?.segments ?? [] : [];
      this.receiver.ended(segments, agrees && this.size === this.#ahead.at, await isCached());
    } catch (error) {
      this.#ahead.end();
      this.receiver.failed(error);
    }
  }

  /**
   * Prefetch parts of the file; only the first request counts.
   * @param {readonly import('./prefetch.js').Range[]} wanted
   * @returns {Promise<Ahead | null>}
   */
  async readAhead(wanted) {
    const found = await this.#ahead.read(wanted);
    if (!found) return null;
    if (found.from <= this.#ahead.at) this.#flush();
    else this.#due = found.from;
    return found;
  }

  /** Give the browser what has come, when it has taken what it was given before. */
  #flush() {
    const chunks = this.#pending;
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#due = this.#ahead.at >= this.#due ? Infinity : this.#due;
    this.#handedOver = this.#handedOver.then(async () => {
      if (!chunks.length) return;
      const part = await blobOf(chunks).catch((error) => { throw outOfStorage(this.url, this.#ahead.at, error); });
      this.receiver.handed?.(part);
      for (const { buffer } of chunks) this.buffers.give(buffer);
    });
    this.#handedOver.catch(() => {}); // awaited before the next, and at the end
  }
}
