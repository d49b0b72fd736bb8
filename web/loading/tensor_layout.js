// @ts-check
/**
 * Derive the locations of a model file's tensors from the end of the file. A graph lists inputs, outputs and value types after its tensors,
 * and torch.onnx also lists the tensors' types there, in file order. The bytes of a tensor before its elements follow from its name and
 * type, and so do all offsets: everything between large tensors can be requested in parallel, while reading headers one by one waits for
 * each. If the sizes do not add up exactly, there is no result.
 *
 * Source: protobuf.dev, "Encoding"; onnx.proto.
 */

import { varint } from '../onnx/scanner.js';

/** @typedef {import('../onnx/scanner.js').Segment} Segment */
/** @typedef {{at: number, head: Uint8Array<ArrayBuffer>, end: number}} Place of a tensor: `head` is before the elements, `end` after them. */

/** Field numbers of a graph: the first after its tensors, and the types of values. */
const AFTER = 10;
const TYPES = 13;

/** Tags of a graph's tensors and of its outputs. */
const TENSOR = 0x2a;
const OUTPUT = 0x62;

/** Bytes to try as the first output's tag, until fields of a graph's end follow. */
const TRIES = 8;

/** Bits of an element by TensorProto.DataType; strings have no fixed size. @type {Record<number, number>} */
const BITS = {
  1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16, 17: 8, 18: 8, 19: 8,
  20: 8, 21: 4, 22: 4, 23: 4, 24: 8,
};

/** @typedef {{field: number, value: number, begin: number}} Field of texts and messages `value` is the end of the content */

/**
 * Return the fields of a message of numbers, strings and messages, in order; null if it is not such a message.
 * @param {Uint8Array} data
 * @param {number} at
 * @param {number} end
 */
function fieldsOf(data, at, end) {
  /** @type {Field[]} */
  const found = [];
  while (at < end) {
    const tag = varint(data, at);
    const number = tag && varint(data, tag[1]);
    if (!tag || !number || (tag[0] % 8 !== 0 && tag[0] % 8 !== 2)) return null;
    const [value, begin] = number;
    const isText = tag[0] % 8 === 2;
    at = isText ? begin + value : begin;
    found.push({ field: Math.floor(tag[0] / 8), value: isText ? at : value, begin });
  }
  return at === end ? found : null;
}

/**
 * Return the fields of the submessage in field `number`.
 * @param {Uint8Array} data
 * @param {Field[] | null} fields
 * @param {number} number
 */
function within(data, fields, number) {
  const found = fields?.find(({ field }) => field === number);
  return found ? fieldsOf(data, found.begin, found.value) : null;
}

/**
 * Return the bytes of a tensor before its elements, as protobuf's writers encode them, and the size of the elements; null if the
 * ValueInfoProto `value` is not a tensor of known size.
 * @param {Uint8Array} data
 * @param {Field} value
 */
function headOf(data, value) {
  const info = fieldsOf(data, value.begin, value.value);
  const name = info?.find(({ field }) => field === 1);
  const tensor = within(data, within(data, info, 2), 1);
  const type = tensor?.find(({ field }) => field === 1)?.value ?? 0;
  const shape = within(data, tensor, 2);
  const dims = shape?.map((dim) => within(data, [dim], dim.field)?.find(({ field }) => field === 1)?.value ?? NaN);
  const nbytes = Math.ceil((dims ?? [NaN]).reduce((product, dim) => product * dim, BITS[type] ?? NaN) / 8);
  if (!name || !dims || Number.isNaN(nbytes)) return null;
  const text = data.subarray(name.begin, name.value);
  const before = [...dims.flatMap((dim) => [0x08, ...number(dim)]), 0x10, ...number(type), 0x42, ...number(text.length), ...text];
  const raw = [0x4a, ...number(nbytes)];
  return { head: new Uint8Array([TENSOR, ...number(before.length + raw.length + nbytes), ...before, ...raw]), nbytes };
}

/** Encode a varint. @param {number} value */
function number(value) {
  const bytes = [];
  for (; value >= 0x80; value = Math.floor(value / 128)) bytes.push((value % 128) | 0x80);
  return [...bytes, value];
}

/**
 * Return the locations of a graph's tensors in file order; null if the end of the file does not determine them.
 * @param {Segment} tail last bytes of the file
 * @param {{end: number, tensors: number}} graph its end, and the location of its first tensor
 * @returns {Place[] | null}
 */
export function placesOf({ at: base, bytes: data }, { end, tensors }) {
  for (let tries = 0, at = end - base; tries < TRIES && at > 0;) {
    at = data.lastIndexOf(OUTPUT, at - 1); // may be the same byte in a name
    const fields = at < 0 ? null : fieldsOf(data, at, end - base);
    if (!fields?.every(({ field }) => field > AFTER)) continue;
    tries += 1;
    const found = followed(fields.filter(({ field }) => field === TYPES), tensors, base + at);
    if (found) return found;
  }
  return null;

  /**
   * Return consecutive tensors of these types, up to the fields of the graph's end.
   * @param {Field[]} types
   * @param {number} at
   * @param {number} output location of the first output
   */
  function followed(types, at, output) {
    /** @type {Place[]} */
    const places = [];
    for (const type of types) {
      const made = headOf(data, type);
      if (!made) return null;
      places.push({ at, head: made.head, end: at + made.head.length + made.nbytes });
      at = places[places.length - 1].end;
      if (at < base || data[at - base] === TENSOR) continue;
      return at <= output && fieldsOf(data, at - base, end - base)?.every(({ field }) => field >= AFTER) ? places : null;
    }
    return null;
  }
}
