// @ts-check
/** Abort a wait by an AbortSignal. */

/**
 * Await `work`, or reject with the reason of `signal` as soon as it is aborted.
 * @template T
 * @param {Promise<T>} work
 * @param {AbortSignal | undefined} signal
 * @param {(late: T) => void} [undo] called with the result of `work` if that arrives after the abort
 * @param {() => void} [abort] called when the signal is aborted
 * @returns {Promise<T>}
 */
export function unlessAborted(work, signal, undo = () => {}, abort = () => {}) {
  if (!signal) return work;
  return new Promise((resolve, reject) => {
    const end = () => {
      work.then(undo, () => {});
      reject(signal.reason);
      abort();
    };
    const finish = (/** @type {() => void} */ outcome) => {
      signal.removeEventListener('abort', end);
      outcome();
    };
    if (signal.aborted) {
      end();
      return;
    }
    signal.addEventListener('abort', end, { once: true });
    work.then((value) => finish(() => resolve(value)), (error) => finish(() => reject(error)));
  });
}
