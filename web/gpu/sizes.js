// @ts-check
/**
 * Evaluate the dynamic dimensions of a plan: their values in a run, the plan's guards on them, and the sizes that follow.
 * Python makes the expressions and guards (`pyruntime/ir/symbolic/sizes.py`). They are data: no code is generated from them.
 */

import { ARRAYS } from '../api/elements.js';

/**
 * @typedef {[number, Atom[]][]} Expression a sum of products: [factor, atoms]
 * @typedef {number | [string, Expression, Expression]} Atom the number of a size, or '//' or '%' of two expressions
 *
 * @typedef {object} Sizes
 * @property {[number, number][]} ranges lowest and highest value of each size
 * @property {boolean[]} grows
 * @property {Record<string, number>} [values] sizes that are the one element of an input, by its name
 * @property {[Expression, '<' | '==', boolean][]} guards compared with 0, and what that has to answer
 * @property {Expression[]} expressions
 * @property {[number, 'u32' | 'i32' | 'f32', number][]} patches offset in `params`, type, number of the expression
 * @property {number} waste how many times larger than a run's sizes the kernels may take them to be
 * @property {Uint8Array} params
 * @property {GPUBuffer | null} buffer where `params` go
 *
 * @typedef {object} Elements a small integer tensor
 * @property {number[]} elements
 * @property {number[]} expressions for each element the number of its expression, or -1
 * @property {number} bytes of an element
 */

/** Sizes below this are alike (`pyruntime/session/run/dynamic_dimensions.py`). */
const SMALL = 64;

/** @type {Record<string, (a: number, b: number) => number>} */
const OPERATIONS = {
  '//': (a, b) => Math.floor(a / b),
  '%': (a, b) => a - b * Math.floor(a / b),
};

/**
 * @param {Expression} expression
 * @param {number[]} values
 */
export function evaluate(expression, values) {
  let total = 0;
  for (const [factor, atoms] of expression) {
    let product = factor;
    for (const atom of atoms) {
      product *= typeof atom === 'number'
        ? values[atom]
        : OPERATIONS[atom[0]](evaluate(atom[1], values), evaluate(atom[2], values));
    }
    total += product;
  }
  return total;
}

/**
 * The sizes that tensors of these dimensions bring; null where they do not fit, or the plan is not for them.
 * @param {Sizes} sizes
 * @param {{dims: number[], scaled: number[]}[]} places dimensions seen, and for each the number of its expression or -1
 * @param {number[][]} given
 * @param {(values: number[]) => boolean} complete adds sizes that no tensor brings; false where the plan is not for these
 * @returns {number[] | null}
 */
export function bind(sizes, places, given, complete) {
  /** @type {number[]} */
  const values = [];
  for (const [i, { dims, scaled }] of places.entries()) {
    if (dims.length !== given[i].length) return null;
    for (const [axis, size] of given[i].entries()) {
      const number = scaled.length ? scaled[axis] : -1;
      if (number < 0) {
        if (size !== dims[axis]) return null;
        continue;
      }
      const at = /** @type {number} */ (sizes.expressions[number][0][1][0]); // an input's dimension is a size itself
      if (values[at] !== undefined && values[at] !== size) return null;
      values[at] = size;
    }
  }
  return complete(values) && suits(sizes, values) ? values : null;
}

/**
 * The elements of an integer tensor as a typed array; null where they are not here.
 * @param {{type: string, data?: unknown} | undefined} tensor
 * @returns {ArrayLike<number | bigint> | null}
 */
export function elementsOf(tensor) {
  const { type = '', data } = tensor ?? {};
  const bytes = data instanceof ArrayBuffer ? data
    : ArrayBuffer.isView(data) ? data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength) : null;
  return bytes && /^u?int(8|16|32|64)$/.test(type) ? new ARRAYS[type](bytes) : null;
}

/**
 * The elements of an integer tensor as numbers; null where they are not here.
 * @param {{type: string, data?: unknown} | undefined} tensor
 * @returns {number[] | null}
 */
export function integersOf(tensor) {
  const elements = elementsOf(tensor);
  return elements && Array.from(elements, Number);
}

/**
 * Add the sizes that are the one element of an input; false where one cannot be read here.
 * @param {Sizes} sizes
 * @param {Record<string, {type: string, data?: unknown}>} feeds
 * @param {number[]} values
 */
export function addNumbers({ values: inputs }, feeds, values) {
  return Object.entries(inputs ?? {}).every(([name, at]) => {
    const elements = integersOf(feeds[name]);
    if (elements?.length !== 1) return false;
    [values[at]] = elements;
    return true;
  });
}

/** How many times larger than these sizes the kernels of a plan may take them to be. @param {Sizes} sizes @param {number[]} values */
export function wasteOf({ ranges, grows }, values) {
  return ranges.reduce((times, [, high], i) => (grows[i] ? times : times * Math.max(1, high / Math.max(values[i], SMALL))), 1);
}

/** @param {Sizes} sizes @param {number[]} values */
function suits(sizes, values) {
  const { ranges, guards, waste } = sizes;
  if (!ranges.every(([low, high], i) => values[i] >= low && values[i] <= high)) return false;
  return wasteOf(sizes, values) <= waste && guards.every(([expression, comparison, answer]) => {
    const difference = evaluate(expression, values);
    return (comparison === '<' ? difference < 0 : difference === 0) === answer;
  });
}

/**
 * The parameters of a run for which the expressions have these values.
 * @param {Sizes} sizes
 * @param {number[]} numbers
 */
export function patched({ params, patches }, numbers) {
  const data = params.slice();
  const view = new DataView(data.buffer);
  for (const [offset, type, number] of patches) {
    const value = numbers[number];
    if (type === 'f32') view.setFloat32(offset, value, true);
    else view.setUint32(offset, value - 2 ** 32 * Math.floor(value / 2 ** 32), true);
  }
  return data.buffer;
}

/**
 * The bytes of a tensor in a run for which the expressions have these values; little endian, negative ones wrapped.
 * @param {Elements} tensor
 * @param {number[]} numbers
 */
export function packed({ elements, expressions, bytes }, numbers) {
  const view = new DataView(new ArrayBuffer(elements.length * bytes));
  for (const [i, element] of elements.entries()) {
    let rest = expressions[i] < 0 ? element : numbers[expressions[i]];
    for (let k = 0; k < bytes; k += 1) {
      const next = Math.floor(rest / 256);
      view.setUint8(i * bytes + k, rest - 256 * next);
      rest = next;
    }
  }
  return view.buffer;
}
