// @ts-check
/**
 * What a graph's reader looks at in a model file, read while the file still streams in: an ONNX file has the inputs of its
 * graph, and small tensors, behind large ones. Range requests jump over these. What they bring is a hint (requests.js).
 */

import { NEAR, Requests } from './requests.js';

/** Bytes that are jumped over at least: fewer come by themselves before a request is answered. */
const FAR = 1 << 20;

/** Bytes that are asked for behind a jump, and at most where what follows is read, too. */
const WINDOW = 1 << 16;
const WIDEST = 1 << 20;

export class ReadingAhead {
  #requests;
  #size;
  #isOver = false;
  #isUnderWay = false;
  #tell = () => {};
  /** All that is kept of the file, or enough to see that it is no model, once it is. @type {import('./scanner.js').Scanner | null} */
  found = null;
  /** Fulfilled when there is `found`. @type {Promise<void>} */
  done = new Promise((resolve) => { this.#tell = resolve; });

  /**
   * @param {string} url that has answered, with no further redirection
   * @param {import('./requests.js').Known} known
   * @param {AbortSignal} signal
   */
  constructor(url, known, signal) {
    this.#requests = new Requests(url, known, signal);
    this.#size = known.size;
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

  /** See `Requests.isVouchedFor`. */
  isVouchedFor() {
    return this.#requests.isVouchedFor();
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
      ahead.push(await this.#requests.bytes(ahead.at, Math.min(ahead.at + window, this.#size)));
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
}
