// @ts-check
/** Checks that readers of plan files share. */

import { ARRAYS, bitsOf } from '../api/elements.js';

/** A plan that is not used, and why. */
export class Refused extends Error {}

const MOST_ITEMS = 1 << 20;
const DEPTH = 24;

/** @type {(text: string) => never} */
export function refuse(text) {
  throw new Refused(text);
}

/** Checks of one file; the first that fails throws. */
export const check = {
  /** @param {unknown} value @param {number} most @param {string} what @param {number} [least] */
  integer(value, most, what, least = 0) {
    if (!Number.isSafeInteger(value) || Number(value) < least || Number(value) > most) refuse(`it is damaged: ${what}`);
  },
  /** @param {unknown} value @param {string} what @param {(item: any, index: number) => void} each @param {number} [most] */
  list(value, what, each, most = MOST_ITEMS) {
    if (!Array.isArray(value) || value.length > most) refuse(`it is damaged: ${what}`);
    for (const [index, item] of /** @type {any[]} */ (value).entries()) each(item, index);
  },
  /** @param {unknown} value @param {string} what */
  text(value, what) {
    if (typeof value !== 'string' || value === '__proto__') refuse(`it is damaged: ${what}`);
  },
  /** @param {unknown} value @param {string} what */
  flag(value, what) {
    if (typeof value !== 'boolean') refuse(`it is damaged: ${what}`);
  },
  /** @param {unknown} value @param {string} what */
  object(value, what) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) refuse(`it is damaged: ${what}`);
  },
};

/** The type of a tensor with data, and the bits of its elements. @param {any} tensor */
export function checkType({ type, bits }) {
  if (!Object.hasOwn(ARRAYS, type) || bits !== bitsOf(type)) refuse('it is damaged: the type of a tensor');
}

/**
 * An input on the host whose elements are read as integers.
 * @param {any} plan
 * @param {string} name
 */
export function checkIntegers({ uploads, unread }, name) {
  const input = [...uploads, ...unread].find((one) => one.name === name);
  if (!/^u?int(8|16|32|64)$/.test(input?.type)) refuse(`it is damaged: '${name}' is no input of integers`);
}

/** @param {any} bound @param {any} plan */
export function checkBound(bound, plan) {
  check.object(bound, 'a bound');
  const { input, least, most, expressions, texts, every } = bound;
  check.text(input, 'the input of a bound');
  if (input !== '') checkIntegers(plan, input);
  for (const end of [least, most]) check.integer(end, Number.MAX_SAFE_INTEGER, 'a bound', -Number.MAX_SAFE_INTEGER);
  check.list(texts, 'a bound', (text) => check.text(text, 'a bound'), 3);
  checkScaled(expressions, plan, 2);
  check.list(every, 'a bound', (number) => check.integer(number, 2 ** 31, 'a bound'), 2);
  if (texts.length !== 3 || expressions.length !== 2 || !(every[1] > 0)) refuse('it is damaged: a bound');
}

/** @param {any} expression @param {number} sizes @param {number} depth */
export function checkExpression(expression, sizes, depth = 0) {
  if (depth > DEPTH) refuse('it is damaged: an expression is too deep');
  check.list(expression, 'an expression', (product) => {
    check.list(product, 'a product', () => {}, 2);
    check.integer(product[0], Number.MAX_SAFE_INTEGER, 'a factor', -Number.MAX_SAFE_INTEGER);
    check.list(product[1], 'factors', (atom) => {
      if (typeof atom === 'number') return check.integer(atom, sizes - 1, 'the number of a size');
      if (!Array.isArray(atom) || atom.length !== 3 || !['//', '%'].includes(atom[0])) refuse('it is damaged: an operation');
      checkExpression(atom[1], sizes, depth + 1);
      checkExpression(atom[2], sizes, depth + 1);
    }, 64);
  }, 4096);
}

/** Validate a decoder's facts for text generation (web/text/local.js). @param {any} decoder */
export function checkDecoder(decoder) {
  if (decoder === null) return;
  const number = (/** @type {unknown} */ value) => { if (!Number.isFinite(value)) refuse('it is damaged: an angle'); };
  check.object(decoder, 'a decoder');
  const { positions, rows, local } = decoder;
  if (positions !== null) check.integer(positions, 2 ** 40, 'positions', 1);
  check.object(rows, 'rows');
  for (const count of Object.values(rows)) check.integer(count, 2 ** 24, 'rows', 1);
  if (local === null) return;
  check.object(local, 'local caches');
  for (const name of ['kept', 'drop', 'chunk']) check.integer(local[name], 2 ** 24, name, 1);
  check.list(local.turns, 'turns', (turn) => {
    check.list(turn?.caches, 'caches', (name) => check.text(name, 'a name'), 4096);
    for (const part of [turn.cos, turn.sin]) check.list(part, 'angles', number, 4096);
    check.flag(turn.interleaved, 'a turn');
    if (turn.cos.length !== turn.sin.length) refuse('it is damaged: a turn');
  }, 4096);
}

/** @param {any} given @param {any} plan @param {number} rank */
export function checkScaled(given, plan, rank) {
  check.list(given, 'scaled', (n) => check.integer(n, plan.expressions.length - 1, 'an expression', -1), rank);
  if (given.length && given.length !== rank) refuse('it is damaged: scaled');
}

/** The sizes that an input brings are sizes themselves. @param {any} plan @param {number[]} scaled */
export function checkOpen({ expressions }, scaled) {
  for (const number of scaled) {
    const [term] = number < 0 ? [[1, [0]]] : expressions[number];
    if (typeof term?.[1]?.[0] !== 'number') refuse('it is damaged: the size of an input');
  }
}
