// @ts-check
/** Integers that inputs have to be, as kernels clamp others: checked before a run (`Bounded` of `pyruntime/compiler/plan.py`). */

import { elementsOf } from './sizes.js';
import { sizeOf } from '../api/elements.js';

/**
 * @typedef {object} Bound
 * @property {string} input its name; empty where no run is right
 * @property {number} least
 * @property {number} most
 * @property {[number, number]} expressions numbers of those that `least` and `most` are, or -1
 * @property {[string, string, string]} texts of the error: before the range, between it and the integer, after its index
 * @property {[number, number]} every first and distance of the elements that it is about
 *
 * @typedef {{type: string, dims: number[], data?: unknown}} Tensor
 */

/** What a run is rejected with, as in Python: an operator cannot compute on what it was given. */
export class RuntimeException extends Error {
  name = 'RuntimeException';
}

/** Whether what is bounded can be read here. @param {Bound[]} bounds @param {Record<string, Tensor>} feeds */
export function canCheck(bounds, feeds) {
  return bounds.every(({ input }) => !input || elementsOf(feeds[input]));
}

/**
 * Throws a RuntimeException where an input is not what it has to be.
 * @param {Bound[]} bounds
 * @param {Record<string, Tensor>} feeds
 * @param {(expression: number) => number} valueOf
 */
export function checkBounds(bounds, feeds, valueOf) {
  for (const { input, least, most, expressions, texts: [before, between, after], every } of bounds) {
    if (!input) throw new RuntimeException(before);
    const [low, high] = [least, most].map((end, i) => (expressions[i] < 0 ? end : valueOf(expressions[i])));
    const { dims } = feeds[input];
    const elements = /** @type {ArrayLike<number | bigint>} */ (elementsOf(feeds[input]));
    const at = outside(elements, sizeOf(dims), low, high, every);
    if (at >= 0) {
      throw new RuntimeException(`${before}[${low}, ${high}]${between}${elements[at]} at [${indexOf(at, dims).join(', ')}]${after}`);
    }
  }
}

/**
 * The number of the first element outside a range; -1 where there is none.
 * @param {ArrayLike<number | bigint>} elements
 * @param {number} count
 * @param {number} low
 * @param {number} high
 * @param {[number, number]} every
 */
function outside(elements, count, low, high, [first, distance]) {
  const number = typeof elements[0] === 'bigint' ? BigInt : Number; // comparisons of one type take a tenth of the time
  const [least, most] = [number(low), number(high)];
  for (let at = first; at < count; at += distance) if (elements[at] < least || elements[at] > most) return at;
  return -1;
}

/** Where the element of that number is in a tensor. @param {number} number @param {number[]} dims */
function indexOf(number, dims) {
  let rest = number;
  const index = [];
  for (const dim of dims.toReversed()) {
    index.unshift(rest % dim);
    rest = Math.floor(rest / dim);
  }
  return index;
}
