// @ts-check
/**
 * What a graph's reader looks at in a model file, read while the file still streams in: an ONNX file has the inputs of its
 * graph, and small tensors, behind large ones. Range requests jump over these. What they bring is a hint: whoever has the
 * whole file compares.
 * Source: RFC 9110, section 14 (range requests); Fetch, "CORS-safelisted request-header".
 */

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
  #size;
  #signal;
  #requests = 0;
  #nbytes = 0;
  #isOver = false;
  #isUnderWay = false;
  #tell = () => {};
  /** All that is kept of the file, once it is. @type {import('./scanner.js').Scanner | null} */
  found = null;
  /** Fulfilled when there is `found`. @type {Promise<void>} */
  done = new Promise((resolve) => { this.#tell = resolve; });

  /**
   * @param {string} url that has answered, with no further redirection
   * @param {number} size of the file
   * @param {AbortSignal} signal
   */
  constructor(url, size, signal) {
    this.#url = url;
    this.#size = size;
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
      if (ahead.passing > NEAR || ahead.at + ahead.passing === this.#size) {
        ahead.skip();
        window = WINDOW;
      }
      if (ahead.at === this.#size) break;
      if (this.#isOver || ahead.isBroken || stream.at >= ahead.at) return; // the stream is further: perhaps later
      ahead.push(await this.#bytes(ahead.at, Math.min(ahead.at + window, this.#size)));
      window = Math.min(2 * window, WIDEST);
    }
    ahead.end();
    if (this.#isOver || ahead.isBroken) return;
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
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (bytes.length !== end - begin) throw new RangeError('these are not the bytes that were asked for');
    return bytes;
  }
}
