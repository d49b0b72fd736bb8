// @ts-check
/** Bytes that go to the browser as they come: it keeps Blobs outside this process, on disk where they are large. */

/** Milliseconds before each further attempt to hand bytes over or to read them. */
const PAUSES = [10, 100, 500, 1000, 2000, 4000];

/**
 * A Blob of these, which the browser has and can read: what it has no room for it drops silently, and Chromium loses Blobs that
 * are made while it begins to move others to the disk.
 * @param {Uint8Array<ArrayBuffer>[]} chunks
 */
export async function partOf(chunks) {
  for (let attempt = 0; ; attempt++) {
    const part = new Blob(chunks);
    try {
      await part.slice(-1).arrayBuffer();
      return part;
    } catch (error) {
      if (attempt >= PAUSES.length) throw error;
      await new Promise((resolve) => { setTimeout(resolve, PAUSES[attempt]); });
    }
  }
}

export class Parts {
  /** Bytes that the browser has. */
  nbytes = 0;
  /** @type {Blob[]} */
  #parts = [];
  #joined = new Blob();

  /** The next one, which can be read. @param {Blob} part */
  push(part) {
    this.#parts.push(part);
    this.nbytes += part.size;
  }

  /** After a failed attempt: whether to try once more, now, and for that a Blob that is new. @param {number} attempt */
  async again(attempt) {
    if (attempt >= PAUSES.length) return false;
    await new Promise((resolve) => { setTimeout(resolve, PAUSES[attempt]); });
    this.#joined = new Blob();
    return true;
  }

  /** Everything so far, as one. */
  get blob() {
    if (this.#joined.size < this.nbytes) this.#joined = new Blob(this.#parts);
    return this.#joined;
  }
}

/** @param {string} url @param {number} nbytes @param {unknown} error */
export function noRoom(url, nbytes, error) {
  return new RangeError(`the browser has no room for ${url} (${nbytes.toLocaleString('en')} bytes): `
    + `${/** @type {Error} */ (error).message}. Use a window that is not private, free disk space, or take a smaller model`);
}
