// @ts-check
/** Promises with external resolve and reject functions. */

/** Same as `Promise.withResolvers`, which not every browser has. */
export function withResolvers() {
  /** @type {(value: any) => void} */
  let resolve = () => {};
  /** @type {(error: unknown) => void} */
  let reject = () => {};
  const promise = new Promise((...both) => { [resolve, reject] = both; });
  return { promise, resolve, reject };
}
