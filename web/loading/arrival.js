// @ts-check
/** Track which bytes of a file have arrived, and wake readers that wait for them. */

export class Arrival {
  /** Bytes that have arrived. */
  arrived = 0;
  /** Whether all bytes have arrived, so that the size is final. */
  isComplete = false;
  /** The error that ended the download early. @type {{error: unknown} | null} */
  failure = null;
  /** Whether a reader was given a size, or prefetched bytes, that turned out to be of another file. */
  wasMisread = false;
  /** Whether the file came from the browser's cache. */
  isCached = true;
  /** Called with the bytes that have arrived, and the total. @type {(loaded: number, total: number | undefined) => void} */
  progress = () => {};
  /** @type {{end: number, resolve: () => void, reject: (error: unknown) => void}[]} */
  #waiting = [];

  /**
   * @param {string} url address of the file
   * @param {number | undefined} size size in bytes, if known before the end
   * @param {boolean} isExact whether the size counts the bytes that arrive
   */
  constructor(url, size, isExact) {
    this.url = url;
    this.size = size;
    this.isExact = isExact;
  }

  /** The file has arrived completely. @param {boolean} wasMisread @param {boolean} isCached */
  finish(wasMisread, isCached) {
    this.wasMisread = wasMisread;
    this.isCached = isCached;
    this.size = this.arrived;
    this.isComplete = true;
    this.wake();
  }

  /** The download has failed. @param {unknown} error */
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

  /** Fulfilled when the bytes before `end` have arrived, or the file has ended. @param {number} end @returns {Promise<void>} */
  there(end) {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ end, resolve, reject });
      this.wake();
    });
  }

  /** Fulfilled when the whole file has arrived. */
  complete() {
    return this.there(Infinity);
  }
}
