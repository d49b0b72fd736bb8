// @ts-check
/**
 * Find the parts of a model file that a reader of its graph and planning need, while the file streams past: everything except the elements
 * of large tensors. Nothing is validated: no further parts of a malformed file are kept, and its reader reports the error.
 *
 * Source: protobuf.dev, "Encoding"; onnx.proto.
 */

/** Bytes above which a tensor's elements are not kept, unless they may be constant-folded. */
const LARGE = 1 << 16;

/**
 * Planning folds values of up to 64 KB (`HEAVY` in pyruntime/compiler/constants.py), such as a mask with one byte for each element. The
 * operands of the mask have as many elements, of four bytes, or of eight for these types: int64, double, uint64, complex64.
 */
const FOLDED = 1 << 16;
const WIDE = [7, 11, 13, 14];

/** Limit in bytes for the tensors kept for that reason alone. */
const MOST_FOLDED = 8 << 20;

/** Bytes at the start of the file that identify other file formats. */
const HEAD = 512;

/** Maximum size of a tag and a length, or of a tag and a number. */
const LONGEST = 20;

/** Limit in bytes for the kept parts. */
const MOST = 64 << 20;

/**
 * Messages that may contain tensors: the fields that are messages, by number, and the fields that are not kept if large.
 * @typedef {{messages: Record<number, string>, large: readonly number[]}} Kind
 * @type {Record<string, Kind>}
 */
const KINDS = {
  model: { messages: { 7: 'graph', 25: 'function' }, large: [20] },
  graph: { messages: { 1: 'node', 5: 'tensor', 15: 'sparse' }, large: [] },
  node: { messages: { 5: 'attribute' }, large: [] },
  attribute: { messages: { 5: 'tensor', 6: 'graph', 10: 'tensor', 11: 'graph', 22: 'sparse', 23: 'sparse' }, large: [] },
  sparse: { messages: { 1: 'tensor', 2: 'tensor' }, large: [] },
  function: { messages: { 7: 'node', 11: 'attribute' }, large: [] },
  tensor: { messages: {}, large: [4, 5, 7, 9, 10, 11] },
};

/** Tags of an attribute's numbers and strings, of which there may be millions. */
const [ELEMENT_FLOAT, ELEMENT_INT, ELEMENT_TEXT] = [7 << 3 | 5, 8 << 3, 9 << 3 | 2];

/** Field numbers of a tensor's type, and of a graph's tensors. */
const TYPE = 2;
const GRAPHS_TENSOR = 5;

const NOTHING = new Uint8Array();

/** @typedef {{at: number, bytes: Uint8Array<ArrayBuffer>}} Segment Bytes of the file from `at` on. */

export class Scanner {
  /** Kept parts, in file order. @type {Segment[]} */
  segments = [];
  /** Bytes kept. */
  nbytes = 0;
  /** Position of the next byte. */
  at = 0;
  /** Whether nothing more is kept. */
  isBroken = false;
  /** Whether that is because the bytes are not a model. */
  isSenseless = false;
  /** Bytes ahead to keep, and then to skip, before the next field. */
  #keep = 0;
  #pass = 0;
  /** The start of a field that the end of a chunk has cut off. */
  #rest = NOTHING;
  /** @type {{kind: Kind, end: number, type?: number}[]} */
  #within;
  /** Bytes kept for constant folding. */
  #folded = 0;
  /** @type {Uint8Array<ArrayBuffer>[]} */
  #parts = [];
  #begin = 0;
  /** Whether all nodes have been seen; writers put them before the graph's tensors. */
  hasAllNodes = false;
  /** The graph, once its end is known; `tensors` is the position of its first tensor. @type {{end: number, tensors: number} | null} */
  graph = null;

  /** @param {number} [size] size of the file, if it is certain */
  constructor(size = Infinity) {
    this.#within = [{ kind: KINDS.model, end: size }];
  }

  /** Scan the next bytes of the file. @param {Uint8Array<ArrayBuffer>} chunk */
  push(chunk) {
    if (this.isBroken) {
      this.at += chunk.length;
      return;
    }
    let from = 0;
    let at = 0;
    while (at < chunk.length && !this.isBroken) {
      if (this.#keep) {
        const step = Math.min(this.#keep, chunk.length - at);
        this.#keep -= step;
        at += step;
      } else if (this.#pass) {
        this.#close(chunk.subarray(from, at), at);
        const step = Math.min(this.#pass, chunk.length - at);
        this.#pass -= step;
        at += step;
        from = at;
        this.#begin = this.at + at;
      } else {
        at = this.#elements(chunk, at);
        if (at < chunk.length) at += this.#field(chunk, at);
      }
    }
    if (this.isBroken) this.#close(chunk.subarray(from), chunk.length);
    else if (at > from) this.#parts.push(chunk.slice(from, at));
    this.at += chunk.length;
  }

  /** How many bytes ahead can be skipped; 0 also if the next bytes cannot be parsed. */
  get passing() {
    return this.isBroken || this.#keep ? 0 : this.#pass;
  }

  /** Continue after the skipped bytes. */
  skip() {
    this.#close(NOTHING, 0);
    this.at += this.#pass;
    this.#pass = 0;
    this.#begin = this.at;
  }

  /** Parts kept so far, including an unfinished one. @returns {Segment[]} */
  get kept() {
    return this.#parts.length ? [...this.segments, { at: this.#begin, bytes: together(this.#parts) }] : this.segments;
  }

  /** The file has ended. */
  end() {
    this.#close(NOTHING, 0);
    this.hasAllNodes = true;
  }

  /**
   * Keep the elements of an attribute that follow each other from `at` of the chunk.
   * @param {Uint8Array} chunk
   * @param {number} at
   * @returns {number} end of the last complete one
   */
  #elements(chunk, at) {
    const { kind, end: last } = this.#within[this.#within.length - 1];
    const tag = chunk[at];
    if (kind !== KINDS.attribute || this.#rest.length || this.at + at >= last) return at;
    const end = Math.min(chunk.length, last - this.at, this.#begin - this.at + MOST - this.nbytes);
    if (tag === ELEMENT_FLOAT) {
      while (at + 5 <= end && chunk[at] === tag) at += 5;
    } else if (tag === ELEMENT_INT) {
      for (let next = at; next < end && chunk[next] === tag;) {
        next += 1;
        while (next < end && chunk[next] > 0x7f) next += 1;
        if (next === end) break;
        next += 1;
        at = next;
      }
    } else if (tag === ELEMENT_TEXT) {
      while (at + 2 <= end && chunk[at] === tag && chunk[at + 1] < 0x80 && at + 2 + chunk[at + 1] <= end) at += 2 + chunk[at + 1];
    }
    return at;
  }

  /**
   * Parse the field at `at` of the chunk, which may start in the rest of the last chunk.
   * @param {Uint8Array} chunk
   * @param {number} at
   * @returns {number} bytes of the chunk that belong to its header
   */
  #field(chunk, at) {
    const here = chunk.subarray(at, at + LONGEST);
    const head = this.#rest.length ? new Uint8Array([...this.#rest, ...here]) : here;
    const found = headerOf(head);
    const taken = found ? found.length - this.#rest.length : Math.min(LONGEST, chunk.length - at);
    if (!found && head.length >= LONGEST) this.#break();
    this.#rest = found ? NOTHING : head.slice();
    if (found) this.#enter(found, this.at + at + taken);
    return taken;
  }

  /**
   * Decide whether to keep, skip or enter a field.
   * @param {{field: number, wire: number, size: number, value: number, length: number}} header
   * @param {number} begin start of its content
   */
  #enter({ field, wire, size, value, length }, begin) {
    const within = this.#within;
    while (within.length > 1 && begin > within[within.length - 1].end) within.pop();
    const message = within[within.length - 1];
    const { kind, end } = message;
    if (begin + size > end || (wire !== 0 && wire !== 1 && wire !== 2 && wire !== 5)) {
      this.#break();
      return;
    }
    if (within.length === 2 && kind === KINDS.graph && field === GRAPHS_TENSOR) {
      this.graph ??= { end, tensors: begin - length };
      this.hasAllNodes = true;
    }
    const inner = wire === 2 && size > LARGE ? kind.messages[field] : undefined;
    if (inner) {
      within.push({ kind: KINDS[inner], end: begin + size });
    } else if (wire === 2 && size > LARGE && kind.large.includes(field) && !this.#isFolded(message, size)) {
      this.#keep = Math.max(0, HEAD - begin);
      this.#pass = size - this.#keep;
    } else {
      if (kind === KINDS.tensor && field === TYPE) message.type = value;
      this.#keep = size;
      if (this.nbytes + begin + size - this.#begin > MOST) this.isBroken = true;
    }
  }

  /**
   * Return whether `size` bytes are kept because they may be constant-folded.
   * @param {{kind: Kind, type?: number}} message
   * @param {number} size
   */
  #isFolded({ kind, type = 0 }, size) {
    const most = Math.min(FOLDED * (WIDE.includes(type) ? 8 : 4), MOST_FOLDED - this.#folded);
    if (kind !== KINDS.tensor || size > most) return false;
    this.#folded += size;
    return true;
  }

  #break() {
    this.isBroken = true;
    this.isSenseless = true;
  }

  /** End a segment with `last`, the bytes of the chunk before `at`. @param {Uint8Array} last @param {number} at */
  #close(last, at) {
    const bytes = together([...this.#parts, last]);
    this.#parts = [];
    if (!bytes.length) return;
    this.segments.push({ at: this.#begin, bytes });
    this.nbytes += bytes.length;
    this.#begin = this.at + at;
  }
}

/** @param {Uint8Array[]} parts */
function together(parts) {
  const bytes = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let to = 0;
  for (const part of parts) {
    bytes.set(part, to);
    to += part.length;
  }
  return bytes;
}

/** @param {Uint8Array} data @param {number} at @returns {[number, number] | null} the number, and its end */
export function varint(data, at) {
  let value = 0;
  for (let scale = 1; at < data.length; scale *= 128) {
    const byte = data[at++];
    value += (byte & 0x7f) * scale;
    if (byte < 0x80) return [value, at];
  }
  return null;
}

/**
 * Parse a field's header: number, wire type, size of the content or value, and header length; null if it is incomplete.
 * @param {Uint8Array} data
 */
export function headerOf(data) {
  const tag = varint(data, 0);
  if (!tag) return null;
  const [field, wire] = [Math.floor(tag[0] / 8), tag[0] % 8];
  if (wire === 1 || wire === 5) return { field, wire, size: wire === 1 ? 8 : 4, value: 0, length: tag[1] };
  const number = varint(data, tag[1]);
  if (!number) return null;
  return { field, wire, size: wire === 2 ? number[0] : 0, value: number[0], length: number[1] };
}

/**
 * Return the segment around `at`; null if there is none.
 * @param {Segment[]} segments ascending and disjoint
 * @param {number} at
 * @returns {Segment | null}
 */
export function around(segments, at) {
  let [low, high] = [0, segments.length - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    const segment = segments[middle];
    if (at < segment.at) high = middle - 1;
    else if (at >= segment.at + segment.bytes.length) low = middle + 1;
    else return segment;
  }
  return null;
}

/**
 * Return `length` bytes at `at`, without a copy; null if no segment has all of them.
 * @param {Segment[]} segments ascending and disjoint
 * @param {number} at
 * @param {number} length
 * @returns {Uint8Array | null}
 */
export function partOf(segments, at, length) {
  const segment = length ? around(segments, at) : { at, bytes: new Uint8Array() };
  if (!segment || at + length > segment.at + segment.bytes.length) return null;
  return segment.bytes.subarray(at - segment.at, at - segment.at + length);
}
