// @ts-check
/**
 * Where a model file has its tensors, foretold from its end. A graph lists inputs, outputs and types of values behind its tensors,
 * and torch.onnx lists the tensors' types there, too, in the order of the file. A tensor's bytes in front of its elements follow
 * from its name and type, and so do all places: what lies between large tensors can be asked for at once, where whoever reads one
 * header after the other would wait for each. Where sizes do not add up to the byte, nothing is foretold.
 * Source: protobuf.dev, "Encoding"; onnx.proto.
 */

import { varint } from './scanner.js';
import { partOf } from './segments.js';

/** @typedef {import('./scanner.js').Segment} Segment */
/** @typedef {{name: Uint8Array, type: number, dims: number[]}} Typed */

/**
 * A tensor of the file.
 * @typedef {object} Tensor
 * @property {number} at its place, and that of `head`, its bytes in front of the elements
 * @property {Uint8Array<ArrayBuffer>} head
 * @property {number} end behind the elements
 */

/** @typedef {Pick<Tensor, 'at' | 'head'>} Head Bytes at a place. */
/** @typedef {{tensors: Tensor[], end: number}} Told The tensors of a graph, in the order of the file, and where they end. */

/** Tags of a graph's fields behind its tensors: a text, inputs, outputs, types, quantisation; metadata (of two bytes). */
const TEXT = 0x52;
const BEHIND = [TEXT, 0x5a, 0x62, 0x6a, 0x72];
const METADATA = [0x82, 0x01];

/** The tags of outputs, which every graph has, of types of other values, and of tensors. */
const OUTPUT = 0x62;
const TYPE = 0x6a;
const TENSOR = 0x2a;

/** How often types are taken for those of the tensors, at most. */
const TRIES = 8;

/** Bytes of a value's name and type, or more. */
const LONG = 1000;

/** Bits of an element by TensorProto.DataType; those of strings are not known. @type {Record<number, number>} */
const BITS = {
  1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16, 17: 8, 18: 8, 19: 8,
  20: 8, 21: 4, 22: 4, 23: 4, 24: 8,
};

/** Add the bytes of a number. @param {number[]} bytes @param {number} value */
export function put(bytes, value) {
  for (; value >= 0x80; value = Math.floor(value / 128)) bytes.push((value % 128) | 0x80);
  bytes.push(value);
}

/**
 * What is in a message of numbers, texts and messages: by field, in order; null where it is no such message.
 * @param {Uint8Array} data
 * @param {number} at
 * @param {number} end
 * @returns {[field: number, value: number, begin: number][] | null} of texts and messages `value` is the end of the content
 */
function fieldsOf(data, at, end) {
  /** @type {[number, number, number][]} */
  const found = [];
  while (at < end) {
    const tag = varint(data, at);
    const number = tag && varint(data, tag[1]);
    if (!tag || !number || (tag[0] % 8 !== 0 && tag[0] % 8 !== 2)) return null;
    const isText = tag[0] % 8 === 2;
    const [value, begin] = number;
    if ((isText ? begin + value : begin) > end) return null;
    found.push([Math.floor(tag[0] / 8), isText ? begin + value : value, begin]);
    at = isText ? begin + value : begin;
  }
  return at === end ? found : null;
}

/** @param {Uint8Array} data @param {[number, number, number][]} fields @param {number} number */
function within(data, fields, number) {
  const found = fields.find(([field]) => field === number);
  return found ? fieldsOf(data, found[2], found[1]) : null;
}

/**
 * A value's name and type; null where it is no tensor of sizes that are known.
 * @param {Uint8Array} data
 * @param {number} begin
 * @param {number} end of a ValueInfoProto
 * @returns {Typed | null}
 */
function typedOf(data, begin, end) {
  const value = fieldsOf(data, begin, end);
  const name = value?.find(([field]) => field === 1);
  const type = value && within(data, value, 2);
  const tensor = type && within(data, type, 1);
  const element = tensor?.find(([field]) => field === 1);
  const shape = tensor && within(data, tensor, 2);
  if (!name || !element || !shape) return null;
  const dims = shape.map(([, stop, start]) => fieldsOf(data, start, stop)?.find(([field]) => field === 1)?.[1] ?? -1);
  if (dims.some((dim) => dim < 0)) return null;
  return { name: data.subarray(name[2], name[1]), type: element[1], dims };
}

/** @typedef {{tag: number, begin: number, end: number}} Field */

/**
 * The fields of a graph's end from `start` on; null where these are none.
 * @param {Uint8Array} data
 * @param {number} start
 * @param {number} end of the graph
 */
function behind(data, start, end) {
  /** @type {Field[]} */
  const fields = [];
  for (let at = start; at < end; at = fields[fields.length - 1].end) {
    const isMetadata = data[at] === METADATA[0] && data[at + 1] === METADATA[1];
    const size = isMetadata || BEHIND.includes(data[at]) ? varint(data, at + (isMetadata ? 2 : 1)) : null;
    if (!size || size[1] + size[0] > end) return null;
    fields.push({ tag: data[at], begin: size[1], end: size[1] + size[0] });
  }
  return fields.length ? fields : null;
}

/** Whether a value of the graph's end has its end at `end`. @param {Uint8Array} data @param {number} end */
function isBehind(data, end) {
  for (let at = end - 2; at >= Math.max(0, end - LONG); at--) {
    const size = BEHIND.includes(data[at]) ? varint(data, at + 1) : null;
    if (size && size[1] + size[0] === end && fieldsOf(data, size[1], end)) return true;
  }
  return false;
}

/**
 * The bytes of a tensor in front of its elements, and how many of these there are, as protobuf's own writers have them.
 * @param {Typed} typed
 */
function headOf({ name, type, dims }) {
  const nbytes = Math.ceil(dims.reduce((product, dim) => product * dim, 1) * (BITS[type] ?? NaN) / 8);
  const [front, before, behind] = [[TENSOR], /** @type {number[]} */ ([]), [0x4a]];
  for (const dim of dims) {
    before.push(0x08);
    put(before, dim);
  }
  before.push(0x10);
  put(before, type);
  before.push(0x42);
  put(before, name.length);
  put(behind, nbytes);
  put(front, before.length + name.length + behind.length + nbytes);
  const head = new Uint8Array(front.length + before.length + name.length + behind.length);
  head.set(front);
  head.set(before, front.length);
  head.set(name, front.length + before.length);
  head.set(behind, head.length - behind.length);
  return { head, nbytes };
}

/**
 * Tensors of these types, one behind the other, up to where fields of a graph's end follow; null where none do.
 * @param {Segment} tail
 * @param {Field[]} fields
 * @param {number} at
 * @param {number} end of the graph
 */
function tensorsOf({ at: base, bytes: data }, fields, at, end) {
  /** @type {Tensor[]} */
  const tensors = [];
  for (const field of fields) {
    if (field.tag !== TYPE) continue;
    const typed = typedOf(data, field.begin, field.end);
    if (!typed || !(typed.type in BITS)) return null;
    const { head, nbytes } = headOf(typed);
    tensors.push({ at, head, end: at + head.length + nbytes });
    at += head.length + nbytes;
    if (at < base || data[at - base] === TENSOR) continue;
    return behind(data, at - base, end - base) && !isBehind(data, at - base) ? { tensors, end: at } : null;
  }
  return null;
}

/**
 * The tensors of a graph, in the order of the file; null where its end does not tell.
 * @param {Segment} tail the file's last bytes
 * @param {number} tensors where the graph's first tensor is
 * @param {number} end of the graph
 * @returns {Told | null}
 */
export function foretell(tail, tensors, end) {
  const { at: base, bytes: data } = tail;
  for (let tries = 0, at = end - base; tries < TRIES && at > 0;) {
    at = data.lastIndexOf(OUTPUT, at - 1); // or the same letter in a name
    if (at < 0) break;
    const fields = behind(data, at, end - base);
    if (!fields || !fieldsOf(data, fields[0].begin, fields[0].end)) continue;
    const found = tensorsOf(tail, fields, tensors, end);
    if (found && agree(found.tensors, [tail])) return found;
    tries += 1;
  }
  return null;
}

/**
 * Whether the bytes in front of tensors' elements are as foretold, where they are known: another order has the same sizes.
 * @param {Head[]} heads
 * @param {Segment[]} known
 * @param {boolean} [unknown] whether others are, too
 */
export function agree(heads, known, unknown = true) {
  return heads.every(({ at, head }) => partOf(known, at, head.length)?.every((byte, i) => byte === head[i]) ?? unknown);
}
