// @ts-check
/** Promises that somebody else settles. */

/** What `Promise.withResolvers` gives, which not every browser has. */
export function withResolvers() {
  /** @type {(value: any) => void} */
  let resolve = () => {};
  /** @type {(error: unknown) => void} */
  let reject = () => {};
  const promise = new Promise((...both) => { [resolve, reject] = both; });
  return { promise, resolve, reject };
}
