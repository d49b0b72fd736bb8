// @ts-check
/**
 * What is kept of a model file of which it is known where the tensors are (foretold.js), but not what is in them: which parts of
 * them are wanted, and what a scanner keeps where it is given these.
 */

import { agree } from './foretold.js';
import { joined } from './ranges.js';
import { around } from './segments.js';

/**
 * @typedef {import('./foretold.js').Tensor} Tensor
 * @typedef {import('./foretold.js').Told} Told
 * @typedef {import('./ranges.js').Range} Range
 * @typedef {import('./scanner.js').Scanner} Scanner
 * @typedef {import('./scanner.js').Segment} Segment
 */

/**
 * The parts of the tensors that a scanner would keep, but for those that the stream or the file's last bytes have; null where the
 * stream has brought something else than was told, or these are too many.
 * @param {Told} told
 * @param {Segment} tail
 * @param {Scanner} stream
 * @param {number} size of the file
 * @returns {Range[] | null}
 */
export function partsOf(told, tail, stream, size) {
  const seen = stream.fork();
  seen.end();
  return agree(told.tensors, seen.segments) ? joined(wanted(told.tensors, stream.fork(), tail.at), size) : null;
}

/**
 * The scanner of the whole file, from where the stream is; null where the file cannot be as was told.
 * @param {Told} told
 * @param {Segment} tail
 * @param {Segment[]} parts of the tensors
 * @param {Scanner} stream
 * @param {number} size of the file
 */
export function scanned(told, tail, parts, stream, size) {
  const ahead = stream.fork();
  replay(ahead, told.tensors, [...parts, tail]);
  feed(ahead, { at: told.end, bytes: tail.bytes.subarray(told.end - tail.at) });
  ahead.end();
  return ahead.at === size && !ahead.isBroken ? ahead : null;
}

/**
 * Have a scanner see the bytes of a segment that it has not seen; what it does not look at before them is passed.
 * @param {Scanner} scanner
 * @param {Segment} segment
 */
function feed(scanner, { at, bytes }) {
  if (scanner.at < at) scanner.skip();
  if (scanner.at < at) throw new RangeError('the file is not as its end tells');
  if (scanner.at < at + bytes.length) scanner.push(bytes.subarray(scanner.at - at));
}

/**
 * The tensors, or parts of them, whose elements a scanner would keep, before `end`.
 * @param {Tensor[]} tensors
 * @param {Scanner} dry comes behind them
 * @param {number} end
 * @returns {Range[]}
 */
function wanted(tensors, dry, end) {
  /** @type {Range[]} */
  const found = [];
  for (const tensor of tensors) {
    if (tensor.end <= dry.at) continue;
    const begin = Math.max(tensor.at, dry.at);
    feed(dry, { at: tensor.at, bytes: tensor.head });
    if (dry.passing) continue;
    if (begin < end) found.push([begin, Math.min(tensor.end, end)]);
    dry.leave();
  }
  return found;
}

/**
 * These parts of the file with nothing in the tensors.
 * @param {Range[]} parts
 * @param {Tensor[]} tensors
 * @returns {Segment[]}
 */
export function blank(parts, tensors) {
  let next = 0;
  return parts.map(([begin, end]) => {
    const bytes = new Uint8Array(end - begin);
    while (next < tensors.length && tensors[next].end <= begin) next += 1;
    for (; next < tensors.length && tensors[next].at < end; next++) {
      const { at, head } = tensors[next];
      const from = Math.max(0, begin - at);
      bytes.set(head.subarray(from, end - at), at + from - begin);
    }
    return { at: begin, bytes };
  });
}

/**
 * Have a scanner see tensors.
 * @param {Scanner} scanner
 * @param {Tensor[]} tensors
 * @param {Segment[]} known what it would keep of them
 */
function replay(scanner, tensors, known) {
  for (const { at, head, end } of tensors) {
    while (scanner.at < end) {
      const segment = around(known, Math.max(at, scanner.at));
      feed(scanner, segment ?? { at, bytes: head });
      if (segment) continue;
      if (!scanner.passing) throw new RangeError('not all of it was asked for');
      break;
    }
  }
}
