// @ts-check
/** Track the arrival of a file's bytes, and wake readers that wait for them. */

export class Arrival {
  /** Bytes that have come. */
  arrived = 0;
  /** Whether all are there, so that the size is final. */
  isComplete = false;
  /** What ended it early. @type {{error: unknown} | null} */
  failure = null;
  /** Whether it was given out with a size, or bytes ahead of the stream, that were of another file. */
  wasMisread = false;
  /** Whether it came from the browser's cache. */
  isCached = true;
  /** Hears how many bytes have come, and of how many. @type {(loaded: number, total: number | undefined) => void} */
  progress = () => {};
  /** @type {{end: number, resolve: () => void, reject: (error: unknown) => void}[]} */
  #waiting = [];

  /**
   * @param {string} url where it comes from
   * @param {number | undefined} size in bytes, as far as that is known before the end
   * @param {boolean} isExact whether that counts the bytes that arrive
   */
  constructor(url, size, isExact) {
    this.url = url;
    this.size = size;
    this.isExact = isExact;
  }

  /** All has come. @param {boolean} wasMisread @param {boolean} isCached */
  finish(wasMisread, isCached) {
    this.wasMisread = wasMisread;
    this.isCached = isCached;
    this.size = this.arrived;
    this.isComplete = true;
    this.wake();
  }

  /** No more comes. @param {unknown} error */
  failed(error) {
    this.failure ??= { error };
    this.wake();
  }

  /** Wake the readers whose bytes have arrived. */
  wake() {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const one of waiting) {
      if (this.isComplete || one.end <= this.arrived) one.resolve();
      else if (this.failure) one.reject(this.failure.error);
      else this.#waiting.push(one);
    }
  }

  /** Fulfilled when the bytes before `end` have come, or the file is at its end. @param {number} end @returns {Promise<void>} */
  there(end) {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ end, resolve, reject });
      this.wake();
    });
  }

  /** Fulfilled when everything has come. */
  complete() {
    return this.there(Infinity);
  }
}
