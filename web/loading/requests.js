// @ts-check
/**
 * Request parts of a file while a stream downloads all of it. The parts are hints, which the owner of the whole file verifies, unless the
 * server confirms by a strong ETag that all responses are of one file.
 *
 * Source: RFC 9110, sections 8.8.3 (ETag) and 14 (range requests); Fetch, "CORS-safelisted request-header".
 */

import { strongTag } from '../net/tags.js';

/** Gaps up to this size are downloaded rather than skipped. */
export const NEAR = 1 << 18;

/** Limit of requests for one file, and of the fraction of its bytes that they may download again. */
export const MOST = 512;
export const SHARE = 1 / 8;

/**
 * Properties of the first response: the file's size, whether that counts the bytes that arrive, and a strong ETag or ''.
 * @typedef {{size: number, isExact: boolean, tag: string}} Known
 */

export class Requests {
  #url;
  #known;
  #signal;
  #count = 0;
  /** Number of responses that are certain to be of the stream's file. */
  #alike = 0;
  #nbytes = 0;

  /**
   * @param {string} url an address that has responded without further redirection
   * @param {Known} known
   * @param {AbortSignal} signal
   */
  constructor(url, known, signal) {
    this.#url = url;
    this.#known = known;
    this.size = known.size; // bytes of the file
    this.#signal = signal;
  }

  /** Whether the server confirmed for every part that it belongs to the stream's file, and the file's size. */
  get areOfOneFile() {
    return this.#count > 0 && this.#alike === this.#count;
  }

  /** Request bytes [begin, end). @param {number} begin @param {number} end */
  async bytes(begin, end) {
    this.#count += 1;
    this.#nbytes += end - begin;
    if (this.#count > MOST || this.#nbytes > SHARE * this.size) throw new RangeError('too much of it is to be read');
    // With a cache the request would wait for the stream, which writes to it.
    const response = await fetch(this.#url, { headers: { Range: `bytes=${begin}-${end - 1}` }, cache: 'no-store', signal: this.#signal });
    const range = response.headers.get('Content-Range'); // may be hidden for other origins
    if (response.status !== 206 || (range !== null && range !== `bytes ${begin}-${end - 1}/${this.size}`)) {
      response.body?.cancel().catch(() => {});
      throw new RangeError('this server gives no such ranges');
    }
    const tag = strongTag(response);
    if (tag && this.#known.tag && tag !== this.#known.tag) throw new RangeError('this is another file');
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (bytes.length !== end - begin) throw new RangeError('these are not the bytes that were asked for');
    if (tag && this.#known.tag && (range !== null || this.#known.isExact)) this.#alike += 1;
    return bytes;
  }
}
