// @ts-check
/** How large tensors are cut, so that copying one piece overlaps with what happens to those before it. */

/** Bytes from which on a tensor goes in pieces. */
export const LARGE = 2 << 20;

/**
 * Bytes of a piece of `nbytes`: large enough that a piece costs little by itself, small enough that many overlap.
 * @param {number} nbytes
 */
export function pieceSize(nbytes) {
  return nbytes > 16 << 20 ? 4 << 20 : 1 << 20;
}

/** Bytes from which on a copy's memory is used again: for fewer, new memory costs nothing. */
export const KEPT = 64 << 10;

/** Buffers that the worker has sent back, warm for the next run. @type {ArrayBuffer[]} */
let spare = [];
/** @type {ReturnType<typeof setTimeout> | undefined} */
let idle;
const KEPT_BYTES = 64 << 20;
const IDLE_MS = 5_000;

/** A buffer of so many bytes, one that came back where there is one. @param {number} nbytes */
function taken(nbytes) {
  const found = spare.findLastIndex(({ byteLength }) => byteLength === nbytes);
  return found < 0 ? new ArrayBuffer(nbytes) : spare.splice(found, 1)[0];
}

/** A copy of `view` in a buffer of its own. @param {ArrayBufferView} view */
export function copied({ buffer, byteOffset, byteLength }) {
  if (byteLength < KEPT) return /** @type {ArrayBuffer} */ (buffer.slice(byteOffset, byteOffset + byteLength));
  const made = taken(byteLength);
  new Uint8Array(made).set(new Uint8Array(buffer, byteOffset, byteLength));
  return made;
}

/**
 * Copies of `view`, piece by piece, in buffers of `pieceSize` bytes.
 * @param {ArrayBufferView} view
 * @returns {Generator<ArrayBuffer>}
 */
export function* cut(view) {
  const size = pieceSize(view.byteLength);
  for (let at = 0; at < view.byteLength; at += size) {
    const piece = taken(size);
    new Uint8Array(piece).set(new Uint8Array(view.buffer, view.byteOffset + at, Math.min(size, view.byteLength - at)));
    yield piece;
  }
}

/** Keep buffers that came back for a while; where there is no room, not those that have been here longest. @param {ArrayBuffer[]} made */
export function takeBack(made) {
  spare.push(...made);
  let over = spare.reduce((sum, { byteLength }) => sum + byteLength, 0) - KEPT_BYTES;
  while (over > 0) over -= /** @type {ArrayBuffer} */ (spare.shift()).byteLength;
  clearTimeout(idle);
  if (spare.length) idle = setTimeout(() => { spare = []; }, IDLE_MS);
}

/** A tensor that arrives in pieces. */
export class Incoming {
  /** @type {ArrayBuffer[]} */
  pieces = [];
  /** @type {Error | undefined} */
  #failure;
  #arrived = () => {};

  /** @param {number} nbytes */
  constructor(nbytes) {
    this.nbytes = nbytes;
  }

  get complete() {
    return this.pieces.length * pieceSize(this.nbytes) >= this.nbytes;
  }

  /** @param {ArrayBuffer} piece */
  push(piece) {
    this.pieces.push(piece);
    this.#arrived();
  }

  /** @param {string} why nothing more will come */
  fail(why) {
    this.#failure = new Error(`an input did not arrive: ${why}`);
    this.#arrived();
  }

  /**
   * `length` bytes at `at`, a multiple of the piece's size, once they are there.
   * @param {number} at
   * @param {number} length
   */
  async part(at, length) {
    const index = at / pieceSize(this.nbytes);
    while (this.pieces.length <= index) {
      if (this.#failure) throw this.#failure;
      await new Promise((resolve) => { this.#arrived = () => resolve(null); });
    }
    return new Uint8Array(this.pieces[index], 0, length);
  }

  /** All of it, in one buffer. */
  async whole() {
    const size = pieceSize(this.nbytes);
    const bytes = new Uint8Array(this.nbytes);
    for (let at = 0; at < this.nbytes; at += size) {
      bytes.set(await this.part(at, Math.min(size, this.nbytes - at)), at);
    }
    return bytes.buffer;
  }
}

/** Bytes of a Blob read at once. */
const BLOCK = 8 << 20;

/** Reads a Blob from front to back, a block ahead. */
export class BlobReader {
  /** @type {{at: number, bytes: Promise<ArrayBuffer>}[]} */
  #blocks = [];

  /** @param {Blob} blob */
  constructor(blob) {
    this.blob = blob;
  }

  /** @param {number} at */
  #block(at) {
    const found = this.#blocks.find((block) => block.at === at);
    if (found) return found;
    const block = { at, bytes: this.blob.slice(at, at + BLOCK).arrayBuffer() };
    block.bytes.catch(() => {}); // heard by who waits for it
    this.#blocks = [...this.#blocks.slice(-1), block];
    return block;
  }

  /**
   * `length` bytes at `at`.
   * @param {number} at
   * @param {number} length
   */
  async part(at, length) {
    const first = at - at % BLOCK;
    const last = first + BLOCK >= this.blob.size ? first : first + BLOCK;
    if (at + length <= first + BLOCK) {
      const { bytes } = this.#block(first);
      this.#block(last);
      return new Uint8Array(await bytes, at - first, length);
    }
    const whole = new Uint8Array(length);
    for (let done = 0; done < length;) {
      const step = Math.min(length - done, BLOCK - (at + done) % BLOCK);
      whole.set(await this.part(at + done, step), done);
      done += step;
    }
    return whole;
  }
}
