// @ts-check
/** Decide whether a recording fits the inputs of a run: types, sizes, values, and the memory that tensors are in. */

import { canCheck, checkBounds } from './bounds.js';
import { addNumbers, bind, evaluate, integersOf } from './sizes.js';
import { isFree, isLongest } from '../worker/tensors.js';

/**
 * @typedef {import('../worker/tensors.js').Remote} Remote
 * @typedef {import('./replay.js').Replay} Replay
 * @typedef {import('./replay.js').Rows} Rows
 * @typedef {import('./replay.js').Fed} Fed
 */

/** @param {{name: string}[]} seen */
const namesOf = (seen) => seen.map(({ name }) => name);

/** @param {string[]} some @param {string[]} others */
const isSame = (some, others) => some.length === others.length && some.every((name) => others.includes(name));

/**
 * @typedef {object} Fitting
 * @property {(replay: Replay, feeds: Record<string, Fed>) => boolean} fits
 * @property {(replay: Replay, feeds: Record<string, Fed>, values: number[]) => boolean} addCapacity binds the dynamic dimensions that count the rows of memory
 * @property {(replay: Replay, feeds: Record<string, Fed>, values: number[]) => boolean} mayWrite
 */

/** Inputs are used in the memory that they are in. @type {Fitting} */
const asItIs = { fits: fitsMemory, addCapacity, mayWrite };

/**
 * The values of the dynamic dimensions with which `replay` runs exactly these feeds and gives exactly these outputs; null where it does
 * not. Throws a RuntimeException if integers are outside the bounds of what the model computes on.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {string[] | null} fetches null: all
 * @param {number} outputs how many the model has
 * @param {string[]} stay outputs that stay on the GPU
 * @param {Fitting} fitting requirements on the memory of inputs
 * @returns {number[] | null}
 */
export function matches(replay, feeds, fetches, outputs, stay, fitting = asItIs) {
  const values = sizesOf(replay, feeds, fetches, outputs, stay, fitting);
  const expressions = replay.sizes?.expressions ?? [];
  if (values) checkBounds(replay.bounds, feeds, (number) => evaluate(expressions[number], values));
  return values;
}

/**
 * Whether feeds match in everything but the values of integers.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {string[] | null} fetches
 * @param {number} outputs
 * @param {string[]} stay
 * @param {Fitting} fitting
 * @returns {number[] | null}
 */
function sizesOf(replay, feeds, fetches, outputs, stay, fitting) {
  const { live, uploads, unread, downloads, inputs, sizes } = replay;
  const given = [...uploads, ...unread, ...inputs];
  const staying = namesOf([...replay.outputs, ...replay.kept]);
  const made = [...namesOf(downloads), ...staying];
  const same = live && given.length === Object.keys(feeds).length
    && given.every(({ name, type }) => feeds[name]?.type === type)
    && inputs.every(({ name }) => feeds[name].remote) && [...uploads, ...unread].every(({ name }) => !feeds[name].remote)
    && isSame(staying, stay) && (fetches ? isSame(made, fetches) : made.length === outputs);
  if (!same || !hasValues(replay, feeds) || !canCheck(replay.bounds, feeds) || !fitting.fits(replay, feeds)) return null;
  const dims = dimsOf(replay, feeds, given.map(({ name }) => name));
  if (sizes) {
    return bind(sizes, given, dims, (values) => (
      addNumbers(sizes, feeds, values) && fitting.addCapacity(replay, feeds, values) && fitting.mayWrite(replay, feeds, values)));
  }
  const equal = given.every((seen, i) => (
    seen.dims.length === dims[i].length && seen.dims.every((dim, axis) => dim === dims[i][axis])));
  return equal && fitting.mayWrite(replay, feeds, []) ? [] : null;
}

/**
 * The dimensions of inputs; of scalars in shape [1] those of scalars, where the plan is the same for both.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {string[]} names
 */
function dimsOf({ scalars = [] }, feeds, names) {
  const flat = scalars.every((name) => feeds[name].dims.length === 1 && feeds[name].dims[0] === 1);
  return names.map((name) => (flat && scalars.includes(name) ? [] : feeds[name].dims));
}

/**
 * Why plans that are for some values of inputs do not run these feeds; empty where it is not for the values.
 * @param {Replay[]} replays
 * @param {Record<string, Fed>} feeds
 */
export function otherValues(replays, feeds) {
  if (!replays.every((replay) => replay.values?.length && !hasValues(replay, feeds))) return '';
  const known = replays.map(({ values = [], uploads, unread }) => values.map(({ name, bytes }) => (
    stated(name, { type: [...uploads, ...unread].find((seen) => seen.name === name)?.type ?? '', data: bytes }))).join('; '));
  const names = [...new Set(replays.flatMap(({ values = [] }) => namesOf(values)))];
  return `the plan is for ${[...new Set(known)].join(', or ')}, not for ${names.map((name) => stated(name, feeds[name])).join('; ')}`;
}

/** An input and its value. @param {string} name @param {{type: string, data?: unknown}} [value] */
function stated(name, value) {
  return `${name} = ${integersOf(value)?.join(', ') ?? 'other values'}`;
}

/**
 * Whether inputs have the values that the plan is for.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 */
function hasValues({ values = [] }, feeds) {
  return values.every(({ name, bytes }) => {
    const { data } = feeds[name] ?? {};
    if (!(data instanceof ArrayBuffer) || data.byteLength !== bytes.length) return false;
    const given = new Uint8Array(data);
    return bytes.every((byte, i) => byte === given[i]);
  });
}

/**
 * How many rows that is: one number for each element of the input, or just one; null where its elements are not here.
 * @param {Rows} rows
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {number[]} values of the dynamic dimensions
 */
export function rowsOf({ input, offset, expression }, { sizes }, feeds, values) {
  const { expressions } = /** @type {import('./sizes.js').Sizes} */ (sizes ?? { expressions: [] });
  const base = expression < 0 ? offset : evaluate(expressions[expression], values);
  return input ? integersOf(feeds[input])?.map((element) => element + base) ?? null : [base];
}

/**
 * Whether no tensor has valid rows where rows are overwritten.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {number[]} values
 */
function mayWrite(replay, feeds, values) {
  return replay.kept.every(({ input, first, axis }) => {
    if (!first) return true;
    const rows = rowsOf(first, replay, feeds, values);
    const remote = /** @type {Remote} */ (feeds[input].remote);
    return rows && remote.dims[axis] === feeds[input].dims[axis] && isFree(remote, Math.min(...rows));
  });
}

/**
 * Whether each input on the GPU is alone in its memory, which is of the kind that the plan expects and on its device.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 */
function fitsMemory({ device, inputs, kept }, feeds) {
  const memories = inputs.map(({ name }) => /** @type {Remote} */ (feeds[name].remote).memory);
  return new Set(memories).size === memories.length && inputs.every(({ name }, i) => {
    const grown = kept.find(({ input, capacity }) => input === name && capacity >= 0);
    const { reserved, device: owner = device } = memories[i];
    return owner === device && (grown ? reserved?.axis === grown.axis : !reserved);
  });
}

/**
 * Bind the dynamic dimensions that count the rows of memory; false where memory is too small for the appended rows.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {number[]} values
 */
function addCapacity({ kept, sizes }, feeds, values) {
  return kept.filter(({ capacity }) => capacity >= 0).every(({ input, axis, scaled, capacity }) => {
    const { expressions } = /** @type {import('./sizes.js').Sizes} */ (sizes);
    const remote = /** @type {Remote} */ (feeds[input].remote);
    const rows = remote.memory.reserved?.rows ?? 0;
    if (values[capacity] !== undefined && values[capacity] !== rows) return false;
    values[capacity] = rows;
    return evaluate(expressions[scaled[axis]], values) <= rows && isLongest(remote);
  });
}
