// @ts-check
/** Split large tensors into pieces, so that copying one piece overlaps with the transfer and upload of earlier ones. */

/** Bytes above which a tensor is split. */
export const LARGE = 2 << 20;

/**
 * Return the piece size for `nbytes`: large enough for little overhead, small enough for many to overlap.
 * @param {number} nbytes
 */
export function pieceSize(nbytes) {
  return nbytes > 16 << 20 ? 4 << 20 : 1 << 20;
}

/** Bytes above which the memory of a copy is reused; allocating less is cheap. */
export const KEPT = 64 << 10;

/** Buffers that the worker has returned, with pages in place for the next run. @type {ArrayBuffer[]} */
let spare = [];
/** @type {ReturnType<typeof setTimeout> | undefined} */
let idle;
const KEPT_BYTES = 64 << 20;
const IDLE_MS = 5_000;

/** Return a buffer of this size, reused if possible. @param {number} nbytes */
function taken(nbytes) {
  const found = spare.findLastIndex(({ byteLength }) => byteLength === nbytes);
  return found < 0 ? new ArrayBuffer(nbytes) : spare.splice(found, 1)[0];
}

/** Copy `view` into a buffer. @param {ArrayBufferView} view */
export function copied({ buffer, byteOffset, byteLength }) {
  if (byteLength < KEPT) return /** @type {ArrayBuffer} */ (buffer.slice(byteOffset, byteOffset + byteLength));
  const made = taken(byteLength);
  new Uint8Array(made).set(new Uint8Array(buffer, byteOffset, byteLength));
  return made;
}

/**
 * Yield copies of `view` in buffers of `pieceSize` bytes.
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

/** Keep returned buffers for reuse; above the limit, the oldest are dropped. @param {ArrayBuffer[]} made */
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

  /** @param {string} why why no more pieces will arrive */
  fail(why) {
    this.#failure = new Error(`an input did not arrive: ${why}`);
    this.#arrived();
  }

  /**
   * Copy the bytes at `at`, a multiple of the piece size, into `target`, at most one piece, when they have arrived.
   * @param {number} at
   * @param {Uint8Array} target
   */
  async copyInto(at, target) {
    const index = at / pieceSize(this.nbytes);
    while (this.pieces.length <= index) {
      if (this.#failure) throw this.#failure;
      await new Promise((resolve) => { this.#arrived = () => resolve(null); });
    }
    target.set(new Uint8Array(this.pieces[index], 0, target.length));
  }

  /** Return the whole tensor in one buffer. */
  async whole() {
    const size = pieceSize(this.nbytes);
    const bytes = new Uint8Array(this.nbytes);
    for (let at = 0; at < this.nbytes; at += size) {
      await this.copyInto(at, bytes.subarray(at, at + size));
    }
    return bytes.buffer;
  }
}
