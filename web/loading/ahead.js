// @ts-check
/**
 * What a graph's reader looks at in a model file, read while the file still streams in: an ONNX file has the inputs of its
 * graph, and small tensors, behind large ones. Range requests jump over these: all at once where the file's end tells where they
 * are (foretold.js), else one after the other. What they bring is a hint (requests.js).
 */

import { agree, foretell } from './foretold.js';
import { blank, partsOf, scanned } from './outline.js';
import { AT_ONCE } from './ranges.js';
import { NEAR, Requests } from './requests.js';

/** Bytes that are jumped over at least: fewer come by themselves before a request is answered. */
const FAR = 1 << 20;

/** Bytes that are asked for behind a jump, and at most where what follows is read, too. */
const WINDOW = 1 << 16;
const WIDEST = 1 << 20;

/** Bytes still to come from which on it is worth to ask for the file's end; how many of its last bytes that is, and at most. */
const WORTH = 4 << 20;
const TAIL = 1 << 17;
const LONGEST = 1 << 20;

/** @typedef {import('./ranges.js').Range} Range */
/** @typedef {import('./scanner.js').Scanner} Scanner */
/** @typedef {import('./scanner.js').Segment} Segment */

export class ReadingAhead {
  #requests;
  #size;
  #jumps;
  #isOver = false;
  #isUnderWay = false;
  /** The file's last bytes, once they have been asked for. @type {Segment | null} */
  #tail = null;
  /** Whether it was looked at what they tell. */
  #isRead = false;
  #onOutline;
  /** What of the file was told as its outline, but for the nodes, which the stream had brought. @type {import('./foretold.js').Head[]} */
  #outlined = [];
  #tell = () => {};
  /** All that is kept of the file, or enough to see that it is no model, once it is. @type {Scanner | null} */
  found = null;
  /** Fulfilled when there is `found`. @type {Promise<void>} */
  done = new Promise((resolve) => { this.#tell = resolve; });

  /**
   * @param {string} url that has answered, with no further redirection
   * @param {import('./requests.js').Known} known
   * @param {AbortSignal} signal
   * @param {boolean} [jumps] whether it is worth to read one header after the other, where the file's end does not tell
   * @param {(segments: Segment[]) => void} [onOutline] hears what there will be, with nothing in the tensors, where the file's end
   * tells that
   */
  constructor(url, known, signal, jumps = true, onOutline = undefined) {
    this.#requests = new Requests(url, known, signal);
    this.#size = known.size;
    this.#jumps = jumps;
    this.#onOutline = onOutline;
  }

  /**
   * The stream has come as far as `scanner`: go ahead from there where that is worth a request.
   * @param {Scanner} scanner
   */
  follow(scanner) {
    if (this.#isOver || this.#isUnderWay || this.found) return;
    if (!this.#isWorthItsEnd(scanner) && !this.#isTold(scanner) && !this.#isWorthJumps(scanner)) return;
    this.#isUnderWay = true;
    this.#go(scanner).catch(() => { this.#isOver = true; }).finally(() => { this.#isUnderWay = false; });
  }

  /** @param {Scanner} stream */
  async #go(stream) {
    if (this.#isWorthItsEnd(stream)) await this.#askForEnd(stream);
    if (this.#tail && this.#isTold(stream)) await this.#readForetold(this.#tail, stream);
    if (!this.found && this.#isWorthJumps(stream)) await this.#read(stream.fork(), stream);
  }

  /** Whether the file's end is to be asked for: it is a model's, and takes long enough to come. @param {Scanner} stream */
  #isWorthItsEnd(stream) {
    return !this.#tail && stream.graphEnd >= 0 && this.#size - stream.at >= WORTH;
  }

  /** Whether it can be seen now what the file's end tells. @param {Scanner} stream */
  #isTold(stream) {
    return this.#tail !== null && !this.#isRead && stream.tensors >= 0;
  }

  /** @param {Scanner} stream */
  #isWorthJumps(stream) {
    return this.#jumps && stream.passing >= FAR;
  }

  /** See `Requests.isVouchedFor`. */
  isVouchedFor() {
    return this.#requests.isVouchedFor();
  }

  /** Whether what was told of the file is what a scanner of all of it has kept. @param {Scanner} scanner */
  agrees(scanner) {
    return this.found ? scanner.agrees(this.found) : agree(this.#outlined, scanner.segments, false);
  }

  /** Nothing of it is wanted any more. */
  stop() {
    this.#isOver = true;
    this.found = null;
  }

  /** @param {Scanner} stream */
  async #askForEnd(stream) {
    const at = Math.max(stream.at, this.#size - Math.min(TAIL + Math.floor(this.#size / 256), LONGEST));
    this.#tail = { at, bytes: await this.#requests.bytes(at, this.#size) };
  }

  /**
   * Ask for what the file's end tells of; nothing where it does not.
   * @param {Segment} tail
   * @param {Scanner} stream
   */
  async #readForetold(tail, stream) {
    this.#isRead = true;
    const told = foretell(tail, stream.tensors, stream.graphEnd);
    const parts = told && partsOf(told, tail, stream, this.#size);
    if (!parts) return;
    const asked = this.#ask([...parts], stream);
    asked.catch(() => {}); // awaited below
    const outline = this.#onOutline ? scanned(told, tail, blank(parts, told.tensors), stream, this.#size) : null;
    if (outline) {
      this.#outlined = [...told.tensors, { at: told.end, head: tail.bytes.subarray(told.end - tail.at) }];
      this.#onOutline?.(outline.segments);
    }
    const segments = await asked;
    if (!segments || !agree(told.tensors, segments)) return;
    const ahead = scanned(told, tail, segments, stream, this.#size);
    if (ahead && !this.#isOver) this.#give(ahead);
  }

  /**
   * Those of the parts that the stream does not bring sooner; null where nobody wants them any more. From the end of the file on:
   * the stream begins at the other one.
   * @param {Range[]} parts
   * @param {Scanner} stream
   */
  async #ask(parts, stream) {
    /** @type {Segment[]} */
    const made = [];
    const several = async () => {
      while (parts.length && !this.#isOver) {
        const [begin, end] = /** @type {Range} */ (parts.pop());
        if (end > stream.at) made.push({ at: begin, bytes: await this.#requests.bytes(begin, end) });
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, several));
    return this.#isOver ? null : made.sort((a, b) => a.at - b.at);
  }

  /**
   * @param {Scanner} ahead
   * @param {Scanner} stream
   */
  async #read(ahead, stream) {
    for (let window = WINDOW; ;) {
      if (ahead.passing > NEAR || ahead.at + ahead.passing >= this.#size) {
        ahead.skip();
        window = WINDOW;
      }
      if (ahead.at >= this.#size || ahead.isBroken) break;
      if (this.#isOver || stream.at >= ahead.at) return; // the stream is further: perhaps later
      ahead.push(await this.#bytes(ahead.at, Math.min(ahead.at + window, this.#size)));
      window = Math.min(2 * window, WIDEST);
    }
    ahead.end();
    const isWhole = ahead.at === this.#size && !ahead.isBroken;
    const isNoModel = ahead.at > this.#size || ahead.isSenseless;
    if (!isWhole && !(isNoModel && await this.isVouchedFor())) this.#isOver = true;
    if (!this.#isOver) this.#give(ahead);
  }

  /** Bytes of the file, asked for where they are not among its last ones. @param {number} begin @param {number} end */
  async #bytes(begin, end) {
    const tail = this.#tail;
    return tail && begin >= tail.at ? tail.bytes.subarray(begin - tail.at, end - tail.at) : this.#requests.bytes(begin, end);
  }

  /** @param {Scanner} ahead */
  #give(ahead) {
    this.found = ahead;
    this.#tell();
  }
}
