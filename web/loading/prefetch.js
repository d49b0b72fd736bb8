// @ts-check
/**
 * Prefetch parts of a large file by range requests: the parts of a model file that a reader of the graph needs, whose inputs and small
 * tensors follow large tensors, and the parts of an external data file that planning may read. Prefetched bytes are compared with the
 * stream's. A scanner reads each region once, from the stream or from a request that is ahead of it.
 */

import { placesOf } from './tensor_layout.js';
import { MOST, NEAR, SHARE } from './requests.js';
import { around } from '../onnx/scanner.js';

/** Shortest range in bytes to skip by a request: fewer arrive from the stream sooner. */
const FAR = 1 << 20;

/** Bytes to request after a skip, and maximum if the bytes after them are read too. */
const WINDOW = 1 << 16;
const WIDEST = 1 << 20;

/** Bytes at the end of a file that describe its tensors: requested for every file, and maximum. */
const TAIL = 1 << 17;
const LONGEST_TAIL = 1 << 20;

/** Concurrent requests. */
const AT_ONCE = 8;

/** Limit in bytes for the parts of a weight file that are kept. */
const MOST_KEPT = 64 << 20;

/** @typedef {import('../onnx/scanner.js').Scanner} Scanner */
/** @typedef {import('../onnx/scanner.js').Segment} Segment */
/** @typedef {[begin: number, end: number]} Range */

export class ReadAhead {
  #requests;
  #scanner;
  /** Prefetched parts, ascending and disjoint; the stream has passed the first `#passed` of them. @type {Segment[]} */
  #parts = [];
  #passed = 0;
  #isUnderWay = false;
  #isOver = false;
  #isFound = false;
  #receiver;
  #known = /** @type {Segment[] | null} */ (null); // parts that the end of the file describes, once requested
  /** Whether parts were derived from the end of the file that have not arrived yet. */
  #isComputed = false;
  /** Position of the stream. */
  at = 0;
  /** Whether the stream agrees with all prefetched bytes so far. */
  agrees = true;

  /**
   * @param {import('./requests.js').Requests | null} requests null: none are made
   * @param {Scanner | null} scanner scanner of a model
   * @param {import('./download.js').Receiver} receiver notified when the scanner has all parts of the graph, or finds no model
   */
  constructor(requests, scanner, receiver) {
    this.#requests = requests;
    this.#scanner = scanner;
    this.#receiver = receiver;
  }

  /** Whether the server confirms that all prefetched parts are of the stream's file. */
  get #isVouchedFor() {
    return (this.#requests?.areOfOneFile ?? false) && !this.#isComputed;
  }

  /** @param {Scanner} scanner @param {boolean} isAhead */
  #tellGraph(scanner, isAhead) {
    this.#isFound = true;
    this.#receiver.graph?.(scanner.segments, isAhead, this.#isVouchedFor);
  }

  /** Add the stream's next bytes. @param {Uint8Array<ArrayBuffer>} chunk */
  push(chunk) {
    this.#compare(chunk);
    const scanner = this.#scanner;
    const from = scanner ? scanner.at - this.at : Infinity;
    this.at += chunk.length;
    if (!scanner || this.#isFound) return;
    if (from < chunk.length) scanner.push(from > 0 ? chunk.subarray(from) : chunk);
    if (scanner.isSenseless && !this.#parts.length) this.#tellGraph(scanner, false);
    if (this.#isOver || this.#isUnderWay || !this.#requests || scanner.passing < FAR) return;
    this.#isUnderWay = true;
    this.#jump(scanner, this.#requests).catch(() => { this.#isOver = true; }).finally(() => { this.#isUnderWay = false; });
  }

  /** The file has ended: nothing more is needed. */
  end() {
    this.#isOver = true;
    if (!this.#isFound) this.#scanner?.end();
  }

  /**
   * Prefetch parts that the stream has not passed; only the first call counts. Null if prefetching is not possible; otherwise resolves when
   * the stream has brought the remaining parts too.
   * @param {readonly Range[]} wanted ascending and disjoint
   * @returns {Promise<import('./download.js').Ahead | null>}
   */
  async read(wanted) {
    const requests = this.#requests;
    if (!requests || this.#isOver) return null;
    const begun = wanted.findLast(([begin]) => begin < this.at);
    const left = joined(wanted.filter(([begin]) => begin >= this.at), requests.size);
    if (!left) return null;
    const streamed = Math.max(this.at, begun ? begun[1] : 0);
    try {
      const late = await this.#ask(requests, left, (part) => this.#add(part));
      return { from: Math.max(streamed, late), segments: [...this.#parts], isVouchedFor: this.#isVouchedFor };
    } catch {
      return null;
    }
  }

  /**
   * Request parts that the stream has not passed, several at a time, from the end of the file backwards. The first request is for one part,
   * as some servers respond with the whole file.
   * @param {import('./requests.js').Requests} requests
   * @param {Range[]} left
   * @param {(part: Segment) => void} came called with parts that arrive before the stream
   * @returns {Promise<number>} end of the last remaining part
   */
  async #ask(requests, left, came) {
    let late = 0;
    const next = async () => {
      const [begin, end] = /** @type {Range} */ (left.pop());
      const bytes = begin >= this.at ? await requests.bytes(begin, end) : null;
      if (bytes && begin >= this.at) came({ at: begin, bytes });
      else late = Math.max(late, end);
    };
    const several = async () => {
      while (left.length && !this.#isOver) await next();
    };
    try {
      if (left.length) await next();
      await Promise.all(Array.from({ length: AT_ONCE }, several));
      return late;
    } finally {
      left.length = 0; // after an error no others are requested
    }
  }

  /** @param {Segment} part */
  #add(part) {
    const after = this.#parts.findLastIndex(({ at }) => at < part.at) + 1;
    this.#parts.splice(after, 0, part);
  }

  /** @param {Uint8Array} chunk */
  #compare(chunk) {
    for (; this.#passed < this.#parts.length; this.#passed++) {
      const { at, bytes } = this.#parts[this.#passed];
      const [first, last] = [Math.max(at, this.at), Math.min(at + bytes.length, this.at + chunk.length)];
      for (let place = first; place < last; place++) if (bytes[place - at] !== chunk[place - this.at]) this.agrees = false;
      if (at + bytes.length > this.at + chunk.length) return;
    }
  }

  /**
   * Follow the scanner from request to request.
   * @param {Scanner} scanner
   * @param {import('./requests.js').Requests} requests
   */
  async #jump(scanner, requests) {
    const { size } = requests;
    const known = scanner.graph ? (this.#known ??= await this.#between(requests, scanner.graph)) : [];
    for (let window = WINDOW; ;) {
      if (scanner.passing > NEAR || scanner.at + scanner.passing >= size) {
        scanner.skip();
        window = WINDOW;
      }
      const { at } = scanner;
      if (at >= size || scanner.isBroken) break;
      const near = around(known, at);
      const bytes = near ? near.bytes.subarray(at - near.at) : await requests.bytes(at, Math.min(at + window, size));
      if (this.#isOver || scanner.at !== at) return; // the stream is ahead; a later request may follow
      this.#add({ at, bytes });
      scanner.push(bytes);
      window = Math.min(2 * window, WIDEST);
    }
    scanner.end();
    const isWhole = scanner.at === size && !scanner.isBroken;
    const isNoModel = (scanner.at > size || scanner.isSenseless) && this.#isVouchedFor;
    this.#isFound = true;
    this.#isOver = true;
    if (isWhole || isNoModel) this.#tellGraph(scanner, true);
  }

  /**
   * Return the ranges between the elements of large tensors, as far as the end of the file describes them, ascending and disjoint.
   * @param {import('./requests.js').Requests} requests
   * @param {{end: number, tensors: number}} graph
   */
  async #between(requests, graph) {
    const { size } = requests;
    const at = Math.max(this.at, size - Math.min(TAIL + Math.floor(size / 256), LONGEST_TAIL));
    const tail = { at, bytes: await requests.bytes(at, size) };
    const places = placesOf(tail, graph) ?? [];
    /** @type {Segment[]} */
    const found = [];
    /** @type {Range[]} */
    const wanted = [];
    for (const place of places) {
      if (place.at >= tail.at) break;
      if (place.end - place.at - place.head.length > NEAR) found.push({ at: place.at, bytes: place.head });
      else if (this.at <= place.at) wanted.push([place.at, Math.min(place.end, tail.at)]);
    }
    this.#isComputed ||= found.length > 0;
    await this.#ask(requests, joined(wanted, size) ?? [], (part) => found.push(part));
    return [...found, tail].sort((a, b) => a.at - b.at);
  }
}

/**
 * Return the ranges to request, merged where they are close; null if they are too much of a file of `size` bytes.
 * @param {Range[]} wanted
 * @param {number} size
 * @returns {Range[] | null}
 */
function joined(wanted, size) {
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
