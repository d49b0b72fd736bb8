// @ts-check
/** Ending a wait by an AbortSignal. */

/**
 * What `work` gives, or the reason of `signal` as soon as that comes.
 * @template T
 * @param {Promise<T>} work
 * @param {AbortSignal | undefined} signal
 * @param {(late: T) => void} [undo] is given what `work` gave after the signal
 * @param {() => void} [abort] is called when the signal comes
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
