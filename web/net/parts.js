// @ts-check
/** Pass bytes on to the browser as they arrive: it keeps Blobs outside this process, on disk where they are large. */

/** Milliseconds before each further attempt to hand bytes over or to read them. */
const PAUSES = [10, 100, 500, 1000, 2000, 4000];

/** After a failed attempt: whether to try once more, now. @param {number} attempt */
export async function again(attempt) {
  if (attempt >= PAUSES.length) return false;
  await new Promise((resolve) => { setTimeout(resolve, PAUSES[attempt]); });
  return true;
}

/**
 * Make a Blob of chunks, and verify that it can be read: browsers silently drop Blobs beyond their storage, and Chromium loses Blobs
 * that are made while it begins to move others to disk.
 * @param {Uint8Array<ArrayBuffer>[]} chunks
 */
export async function blobOf(chunks) {
  for (let attempt = 0; ; attempt++) {
    const part = new Blob(chunks);
    try {
      await part.slice(-1).arrayBuffer();
      return part;
    } catch (error) {
      if (!(await again(attempt))) throw error;
    }
  }
}

/** @param {string} url @param {number} nbytes @param {unknown} error */
export function outOfStorage(url, nbytes, error) {
  return new RangeError(`the browser has no storage for ${url} (${nbytes.toLocaleString('en')} bytes): `
    + `${/** @type {Error} */ (error).message}. Use a window that is not private, free disk space, or take a smaller model`);
}
