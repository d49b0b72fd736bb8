// @ts-check
/** Pass bytes to the browser's Blob storage as they arrive: outside this process, on disk for large Blobs. */

/** Milliseconds before each retry of storing or reading bytes. */
const PAUSES = [10, 100, 500, 1000, 2000, 4000];

/** After a failed attempt, wait; return whether to retry. @param {number} attempt */
export async function again(attempt) {
  if (attempt >= PAUSES.length) return false;
  await new Promise((resolve) => { setTimeout(resolve, PAUSES[attempt]); });
  return true;
}

/**
 * Create a Blob of chunks, and verify that it can be read: browsers silently drop Blobs beyond their storage, and Chromium loses Blobs that
 * are created while it starts to move others to disk.
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
