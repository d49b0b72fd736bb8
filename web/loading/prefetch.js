// @ts-check
/**
 * Prefetch parts of a large file by range requests before the stream brings them: what a reader of the graph needs of a model file,
 * whose inputs and small tensors lie after large tensors, and what planning may read of an external data file. The stream's bytes are
 * compared with them. A scanner sees each region once: from the stream, or from a request that is further.
 */

import { placesOf } from './tensor_layout.js';
import { MOST, NEAR, SHARE } from './requests.js';
import { around } from '../onnx/scanner.js';

/** Bytes that are jumped over at least: fewer come by themselves before a request is answered. */
const FAR = 1 << 20;

/** Bytes that are requested after a jump; and at most, where the bytes after them are read, too. */
const WINDOW = 1 << 16;
const WIDEST = 1 << 20;

/** Bytes of a file's end that tell where its tensors are: of each file, and at most. */
const TAIL = 1 << 17;
const LONGEST_TAIL = 1 << 20;

/** Requests at a time. */
const AT_ONCE = 8;

/** Most bytes of a file of weights that are kept. */
const MOST_KEPT = 64 << 20;

/** @typedef {import('../onnx/scanner.js').Scanner} Scanner */
/** @typedef {import('../onnx/scanner.js').Segment} Segment */
/** @typedef {[begin: number, end: number]} Range */

export class ReadAhead {
  #requests;
  #scanner;
  /** What was read ahead, ascending, apart; the stream has brought the first `#passed` of them. @type {Segment[]} */
  #parts = [];
  #passed = 0;
  #isUnderWay = false;
  #isOver = false;
  #isFound = false;
  #receiver;
  #known = /** @type {Segment[] | null} */ (null); // parts that the file's end describes, once that was requested
  /** Whether bytes were computed from the file's end that have not arrived yet. */
  #isComputed = false;
  /** Where the stream is. */
  at = 0;
  /** Whether it has brought nothing else than what was read ahead. */
  agrees = true;

  /**
   * @param {import('./requests.js').Requests | null} requests null: none are made
   * @param {Scanner | null} scanner of a model
   * @param {import('./download.js').Receiver} receiver is notified when the scanner has all parts of the graph, or finds no model
   */
  constructor(requests, scanner, receiver) {
    this.#requests = requests;
    this.#scanner = scanner;
    this.#receiver = receiver;
  }

  /** Whether the server says of all that was read ahead that it is of the file that the stream brings. */
  get #isVouchedFor() {
    return (this.#requests?.areOfOneFile ?? false) && !this.#isComputed;
  }

  /** @param {Scanner} scanner @param {boolean} isAhead */
  #tellGraph(scanner, isAhead) {
    this.#isFound = true;
    this.#receiver.graph?.(scanner.segments, isAhead, this.#isVouchedFor);
  }

  /** The stream brings these. @param {Uint8Array<ArrayBuffer>} chunk */
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

  /** The file is at its end: nothing more is wanted. */
  end() {
    this.#isOver = true;
    if (!this.#isFound) this.#scanner?.end();
  }

  /**
   * Prefetch parts that the stream has not brought; only the first request counts. Null where it cannot be
   * had; else also where the stream has brought the others.
   * @param {readonly Range[]} wanted ascending, apart
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
   * Ask for parts that the stream has not brought, several at a time, from the end of the file on, as the stream begins at the other
   * one. First for one part: there are servers that answer with the whole file.
   * @param {import('./requests.js').Requests} requests
   * @param {Range[]} left
   * @param {(part: Segment) => void} came gets the parts that arrived before the stream
   * @returns {Promise<number>} where the last of the others ends
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
      left.length = 0; // where one failed the others end
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
   * Follow what the scanner looks at from request to request.
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
      if (this.#isOver || scanner.at !== at) return; // the stream is further: perhaps later
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
   * The ranges between the elements of large tensors, as far as the file's end describes them, ascending and disjoint.
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
 * The parts to ask for, with what is between those that are near; null where that is too much of a file of `size` bytes.
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
