// @ts-check
/**
 * Request parts of a file while a stream brings all of it. The parts are a hint, which the owner of the whole file verifies, unless
 * the server says by a strong ETag that all responses are of one file.
 * Source: RFC 9110, sections 8.8.3 (ETag) and 14 (range requests); Fetch, "CORS-safelisted request-header".
 */

import { strongTag } from '../net/tags.js';

/** Bytes that are read rather than jumped over. */
export const NEAR = 1 << 18;

/** Requests for one file, and which part of it they may bring once more. */
export const MOST = 512;
export const SHARE = 1 / 8;

/**
 * What the answer said: the size of the file, whether that counts the bytes that arrive, and a strong ETag, '' where there was none.
 * @typedef {{size: number, isExact: boolean, tag: string}} Known
 */

export class Requests {
  #url;
  #known;
  #signal;
  #count = 0;
  /** How many of them were answered with parts of the stream's very file. */
  #alike = 0;
  #nbytes = 0;

  /**
   * @param {string} url that has answered, with no further redirection
   * @param {Known} known
   * @param {AbortSignal} signal
   */
  constructor(url, known, signal) {
    this.#url = url;
    this.#known = known;
    this.size = known.size; // bytes of the file
    this.#signal = signal;
  }

  /** Whether the server says of all that was read that it is of the file that the stream brings, and how long that is. */
  get areOfOneFile() {
    return this.#count > 0 && this.#alike === this.#count;
  }

  /** Those from `begin` to `end`. @param {number} begin @param {number} end */
  async bytes(begin, end) {
    this.#count += 1;
    this.#nbytes += end - begin;
    if (this.#count > MOST || this.#nbytes > SHARE * this.size) throw new RangeError('too much of it is to be read');
    // A cache would let it wait for the stream, which writes there.
    const response = await fetch(this.#url, { headers: { Range: `bytes=${begin}-${end - 1}` }, cache: 'no-store', signal: this.#signal });
    const range = response.headers.get('Content-Range'); // other origins need not show it
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
