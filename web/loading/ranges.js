// @ts-check
/**
 * Parts of a file of weights, read ahead of the stream that brings it all: those that planning may look at lie between large ones.
 * They are asked for all at once, unless the stream is faster; what it brings is compared with what they were.
 */

import { MOST, NEAR, SHARE } from './requests.js';

/** Requests at a time. */
export const AT_ONCE = 8;

/** Most bytes that are kept. */
const MOST_KEPT = 64 << 20;

/** @typedef {import('./scanner.js').Segment} Segment */
/** @typedef {[begin: number, end: number]} Range */

/**
 * A part that is asked for.
 * @typedef {object} Part
 * @property {number} begin
 * @property {number} end
 * @property {Uint8Array<ArrayBuffer> | null} bytes as they were given out
 * @property {Uint8Array<ArrayBuffer> | null} streamed what the stream brings of it
 */

export class Ranges {
  /** Where the stream has brought all that is wanted and not asked for. */
  from;
  /** Whether the stream has brought nothing else than what was read ahead. */
  agrees = true;
  /** All that was asked for, in the order of the file; null where it cannot be had. @type {Promise<Segment[] | null>} */
  found;
  #requests;
  /** @type {Part[]} */
  #parts;
  /** How many of them the stream has brought. */
  #passed = 0;
  #isOver = false;

  /**
   * @param {import('./requests.js').Requests} requests
   * @param {readonly Range[]} wanted ascending, apart
   * @param {number} at where the stream is
   */
  constructor(requests, wanted, at) {
    this.#requests = requests;
    const begun = wanted.findLast(([begin]) => begin < at);
    this.from = Math.max(at, begun ? begun[1] : 0);
    const parts = joined(wanted.filter(([begin]) => begin >= at), requests.size);
    this.#parts = (parts ?? []).map(([begin, end]) => ({ begin, end, bytes: null, streamed: null }));
    this.found = parts ? this.#read().catch(() => null) : Promise.resolve(null);
  }

  /** The stream brings these. @param {Uint8Array} chunk @param {number} at its place */
  push(chunk, at) {
    for (; this.#passed < this.#parts.length; this.#passed++) {
      const part = this.#parts[this.#passed];
      const [first, last] = [Math.max(part.begin, at), Math.min(part.end, at + chunk.length)];
      if (first >= last) return;
      part.streamed ??= new Uint8Array(part.end - part.begin);
      part.streamed.set(chunk.subarray(first - at, last - at), first - part.begin);
      if (last < part.end) return;
      this.#compare(part, part.streamed);
    }
  }

  /** Nothing more is wanted. */
  stop() {
    this.#isOver = true;
  }

  /** @param {Part} part @param {Uint8Array<ArrayBuffer>} streamed all of it */
  #compare(part, streamed) {
    if (part.bytes && part.bytes.some((byte, k) => byte !== streamed[k])) this.agrees = false;
    part.bytes ??= streamed;
    part.streamed = null;
  }

  /**
   * Ask for all that has not come, from the end of the file on: the stream begins at the other one. First for one part: there are
   * servers that answer with the whole file.
   */
  async #read() {
    const left = [...this.#parts];
    const next = async () => {
      const part = left.pop();
      if (!part || part.bytes) return;
      const bytes = await this.#requests.bytes(part.begin, part.end);
      part.bytes ??= bytes;
    };
    const several = async () => {
      while (left.length && !this.#isOver) await next();
    };
    try {
      await next();
      await Promise.all(Array.from({ length: AT_ONCE }, several));
    } catch (error) {
      this.stop();
      throw error;
    }
    return this.#parts.map(({ begin, bytes }) => ({ at: begin, bytes: /** @type {Uint8Array<ArrayBuffer>} */ (bytes) }));
  }
}

/**
 * The parts to ask for, with what is between those that are near; null where that is too much of a file of `size` bytes.
 * @param {Range[]} wanted
 * @param {number} size
 * @returns {Range[] | null}
 */
export function joined(wanted, size) {
  const most = Math.min(SHARE * size, MOST_KEPT);
  for (let near = NEAR; ; near >>= 1) {
    /** @type {Range[]} */
    const parts = [];
    for (const [begin, end] of wanted) {
      const last = parts.at(-1);
      if (last && begin - last[1] <= near) last[1] = end;
      else parts.push([begin, end]);
    }
    const nbytes = parts.reduce((sum, [begin, end]) => sum + end - begin, 0);
    if (parts.length > MOST || (parts.at(-1)?.[1] ?? 0) > size) return null;
    if (nbytes <= most) return parts;
    if (!near) return null;
  }
}
