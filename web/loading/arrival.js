// @ts-check
/** Bytes that arrive one behind the other, and who waits for them. */

/** @typedef {{end: number, resolve: () => void, reject: (error: unknown) => void}} Waiting */

export class Arrival {
  /** Bytes that have come. */
  arrived = 0;
  /** Whether all are there, so that the size is final. */
  isComplete = false;
  /** What ended it early. @type {{error: unknown} | null} */
  failure = null;
  /** @type {Waiting[]} */
  #waiting = [];

  /** No more comes. @param {unknown} error */
  failed(error) {
    this.failure ??= { error };
    this.wake();
  }

  /** Tell those who wait for what is there now. */
  wake() {
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
}
