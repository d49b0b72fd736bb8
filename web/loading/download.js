// @ts-check
/**
 * Download a file into memory, or pass it to the browser's Blob storage, outside this process. Runs in the reader's thread or in the
 * download worker (downloader.js).
 */

import { ReadAhead } from './prefetch.js';
import { Requests } from './requests.js';
import { Scanner } from '../onnx/scanner.js';
import { blobOf, outOfStorage } from '../net/parts.js';
import { openStream } from '../net/stream.js';
import { Buffers } from '../net/reading.js';
import { strongTag } from '../net/tags.js';

/** Bytes that are passed to Blob storage at a time. */
const BLOCK = 8 << 20;

/** Bytes of a file in memory that are reported at a time. */
const PIECE = 1 << 18;

/** @typedef {import('../onnx/scanner.js').Segment} Segment */

/**
 * Prefetched parts of a file whose stream has arrived up to `from`; and whether the server confirms that they are of the same file.
 * @typedef {{from: number, segments: Segment[], isVouchedFor: boolean}} Ahead
 */

/**
 * Listener of a download. Calls come in file order; `ended` or `failed` is the last.
 * @typedef {object} Receiver
 * @property {(loaded: number, total: number | undefined) => void} [progress] bytes that have arrived, and the total if known
 * @property {(chunk: Uint8Array<ArrayBuffer>) => void} [came] called with the next bytes of a file in memory
 * @property {(part: Blob) => void} [handed] called with the next bytes, in Blob storage
 * @property {(segments: Segment[], isAhead: boolean, isVouchedFor: boolean) => void} [graph] called with all parts that a
 *   reader of the graph needs, or bytes that are not a model; prefetched, or from the stream
 * @property {(segments: Segment[], agrees: boolean, isCached: boolean) => void} ended the file is complete;
 *   `agrees`: earlier reports were correct; `isCached`: it came from the browser's cache
 * @property {(error: unknown) => void} failed
 */

/**
 * A file for which the server has responded.
 * @typedef {object} Opened
 * @property {number | undefined} size in bytes, if the server sends it
 * @property {boolean} isExact whether that counts the bytes that arrive
 * @property {string} tag its strong ETag; '' if there is none
 * @property {string} validator changes with the file; '' if the server sends none
 * @property {(receiver: Receiver) => void} pieces passes the file on in chunks, which the receiver then owns
 * @property {(receiver: Receiver) => void} into passes the file on to Blob storage
 * @property {(wanted: readonly import('./prefetch.js').Range[]) => Promise<Ahead | null>} ahead prefetches these parts of a weight file,
 *   once; null if that is not possible
 * @property {boolean} isElsewhere whether another thread downloads it
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
  /** Buffers of the chunks, for reuse. */
  buffers = new Buffers();
  /** Chunks that were not passed to Blob storage yet. @type {Uint8Array<ArrayBuffer>[]} */
  #pending = [];
  #pendingBytes = 0;
  /** Fulfilled when the bytes passed on are in Blob storage. @type {Promise<void>} */
  #handedOver = Promise.resolve();
  /** End of the bytes that a reader waits for, until they are in Blob storage. */
  #due = Infinity;
  #ahead;

  /**
   * @param {string} url
   * @param {number | undefined} size
   * @param {Receiver} receiver
   * @param {Requests | null} [requests] requests for parts that are prefetched
   * @param {Scanner | null} [scanner] scanner of a model
   */
  constructor(url, size, receiver, requests = null, scanner = null) {
    this.url = url;
    this.size = size;
    this.receiver = receiver;
    this.scanner = scanner;
    this.#ahead = new ReadAhead(requests, scanner, receiver);
  }

  /**
   * Receive the stream to its end.
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

  /** Pass pending chunks to Blob storage, after those before. */
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
    this.#handedOver.catch(() => {}); // awaited before the next flush, and at the end
  }
}
