// @ts-check
/**
 * What a graph's reader looks at in a model file, read while the file still streams in: an ONNX file has the inputs of its
 * graph, and small tensors, behind large ones. Range requests jump over these. What they bring is a hint: whoever has the
 * whole file compares. It is more where the server says, by a strong ETag, that all is of one file.
 * Source: RFC 9110, sections 8.8.3 (ETag) and 14 (range requests); Fetch, "CORS-safelisted request-header".
 */

import { strongTag } from '../tags.js';

/** Bytes that are jumped over at least: fewer come by themselves before a request is answered. */
const FAR = 1 << 20;

/** Bytes that are read rather than jumped over, once it goes ahead. */
const NEAR = 1 << 18;

/** Bytes that are asked for behind a jump, and at most where what follows is read, too. */
const WINDOW = 1 << 16;
const WIDEST = 1 << 20;

/** Requests for one file, and which part of it they may bring once more. */
const MOST = 512;
const SHARE = 1 / 8;

export class ReadingAhead {
  #url;
  #known;
  #size;
  #signal;
  #requests = 0;
  /** How many of them were answered with parts of the stream's very file. */
  #alike = 0;
  #nbytes = 0;
  #isOver = false;
  #isUnderWay = false;
  #tell = () => {};
  /** All that is kept of the file, or enough to see that it is no model, once it is. @type {import('./scanner.js').Scanner | null} */
  found = null;
  /** Fulfilled when there is `found`. @type {Promise<void>} */
  done = new Promise((resolve) => { this.#tell = resolve; });

  /**
   * @param {string} url that has answered, with no further redirection
   * @param {{size: number, isExact: boolean, tag: string}} known what the answer said: the size of the file, whether that counts
   * the bytes that arrive, and a strong ETag, '' where there was none
   * @param {AbortSignal} signal
   */
  constructor(url, known, signal) {
    this.#url = url;
    this.#known = known;
    this.#size = known.size;
    this.#signal = signal;
  }

  /**
   * The stream has come as far as `scanner`: go ahead from there where that is worth a request.
   * @param {import('./scanner.js').Scanner} scanner
   */
  follow(scanner) {
    if (this.#isOver || this.#isUnderWay || this.found || scanner.passing < FAR) return;
    this.#isUnderWay = true;
    this.#read(scanner.fork(), scanner).catch(() => { this.#isOver = true; }).finally(() => { this.#isUnderWay = false; });
  }

  /**
   * Whether the server says of all that was read ahead that it is of the file that the stream brings, and how long that is; it is
   * asked for a byte where nothing was read.
   */
  async isVouchedFor() {
    if (!this.#known.tag) return false;
    if (!this.#requests) await this.#bytes(this.#size - 1, this.#size).catch(() => {});
    return this.#alike === this.#requests;
  }

  /** Nothing of it is wanted any more. */
  stop() {
    this.#isOver = true;
    this.found = null;
  }

  /**
   * @param {import('./scanner.js').Scanner} ahead
   * @param {import('./scanner.js').Scanner} stream
   */
  async #read(ahead, stream) {
    for (let window = WINDOW; ;) {
      if (ahead.passing > NEAR || ahead.at + ahead.passing >= this.#size) {
        ahead.skip();
        window = WINDOW;
      }
      if (ahead.at >= this.#size || ahead.isBroken) break;
      if (this.#isOver || stream.at >= ahead.at) return; // the stream is further: perhaps later
      ahead.push(await this.#bytes(ahead.at, Math.min(ahead.at + window, this.#size)));
      window = Math.min(2 * window, WIDEST);
    }
    ahead.end();
    const isWhole = ahead.at === this.#size && !ahead.isBroken;
    const isNoModel = ahead.at > this.#size || ahead.isSenseless;
    if (!isWhole && !(isNoModel && await this.isVouchedFor())) this.#isOver = true;
    if (this.#isOver) return;
    this.found = ahead;
    this.#tell();
  }

  /** Those from `begin` to `end`. @param {number} begin @param {number} end */
  async #bytes(begin, end) {
    this.#requests += 1;
    this.#nbytes += end - begin;
    if (this.#requests > MOST || this.#nbytes > SHARE * this.#size) throw new RangeError('too much of it is to be read');
    // A cache would let it wait for the stream, which writes there.
    const response = await fetch(this.#url, { headers: { Range: `bytes=${begin}-${end - 1}` }, cache: 'no-store', signal: this.#signal });
    const range = response.headers.get('Content-Range'); // other origins need not show it
    if (response.status !== 206 || (range !== null && range !== `bytes ${begin}-${end - 1}/${this.#size}`)) {
      response.body?.cancel().catch(() => {});
      throw new RangeError('this server gives no such ranges');
    }
    const tag = strongTag(response);
    if (tag && this.#known.tag && tag !== this.#known.tag) throw new RangeError('this is another file');
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (bytes.length !== end - begin) throw new RangeError('these are not the bytes that were asked for');
    if (tag && (range !== null || this.#known.isExact)) this.#alike += 1;
    return bytes;
  }
}
