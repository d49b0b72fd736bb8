// @ts-check
/**
 * Validate what plan files say about tensors that stay on the GPU (`SavedProgram` and `Kept` of `pyruntime/compiler/`).
 */

import { check, checkIntegers, checkOpen, checkScaled, refuse } from './checks.js';

/**
 * @typedef {object} SavedKept an output in the memory of an input
 * @property {string} name
 * @property {string} type
 * @property {number} bits
 * @property {number[]} dims
 * @property {number[]} scaled
 * @property {string} input
 * @property {number} axis
 * @property {number} capacity
 * @property {{dims: number[], scaled: number[]} | null} given
 * @property {import('../gpu/replay.js').Rows | null} first
 * @property {import('../gpu/replay.js').Rows | null} end
 */

/** Different texts. @param {unknown} value @param {string} what */
function checkNames(value, what) {
  check.list(value, what, (name) => check.text(name, what), 1 << 16);
  const names = /** @type {string[]} */ (value);
  if (new Set(names).size !== names.length) refuse(`it is damaged: ${what}`);
}

/** @param {any} value @param {any} plan */
function checkShape({ dims, scaled }, plan) {
  check.list(dims, 'a shape', (d) => check.integer(d, 2 ** 40, 'a dimension'), 64);
  checkScaled(scaled, plan, dims.length);
}

/** @param {any} rows @param {any} plan */
function checkRows(rows, plan) {
  if (rows === null) return;
  check.object(rows, 'rows');
  check.text(rows.input, 'the input of rows');
  if (rows.input !== '') checkIntegers(plan, rows.input);
  check.integer(rows.offset, 2 ** 40, 'rows', -(2 ** 40));
  check.integer(rows.expression, plan.expressions.length - 1, 'rows', -1);
}

/** @param {any} kept @param {any} program @param {Map<string, any>} external */
function checkKept(kept, { plan, sizes, inputs }, external) {
  check.object(kept, 'a tensor that is kept');
  const { name, type, bits, dims, scaled, input, axis, capacity, given, first, end } = kept;
  check.text(name, 'a name');
  checkShape(kept, plan);
  const memory = inputs.includes(input) ? external.get(input) : null;
  if (!memory || memory.type !== type || memory.bits !== bits || memory.dims.length !== dims.length) refuse(`it is damaged: the memory of '${name}'`);
  check.integer(axis, dims.length - 1, `the axis of '${name}'`, -1);
  check.integer(capacity, (sizes?.ranges.length ?? 0) - 1, `the capacity of '${name}'`, -1);
  if (capacity >= 0 && !(axis >= 0 && scaled[axis] >= 0 && given)) refuse(`it is damaged: the rows of '${name}'`);
  if (given !== null) {
    check.object(given, 'a tensor that is kept');
    checkShape(given, plan);
    if (given.dims.length !== dims.length) refuse(`it is damaged: the input of '${name}'`);
  }
  if ((first === null) !== (end === null) || (first && axis < 0)) refuse(`it is damaged: the rows of '${name}'`);
  checkRows(first, plan);
  checkRows(end, plan);
}

/**
 * Validate a program's inputs and outputs, after its plan and dynamic dimensions.
 * @param {any} header
 * @param {any} program
 * @param {number} sections bytes of the file's
 */
export function checkStaying(header, program, sections) {
  const { plan, computed, inputs, outputs, values, scalars } = program;
  checkNames(inputs, 'inputs on the GPU');
  checkNames(outputs, 'outputs on the GPU');
  const external = new Map(plan.external.map((/** @type {any} */ t) => [t.name, t]));
  check.list(plan.kept, 'tensors that are kept', (kept) => checkKept(kept, program, external), 1 << 16);
  const bound = [...Object.keys(computed), ...inputs, ...outputs];
  if (new Set(bound).size !== bound.length || bound.some((name) => !external.has(name))) refuse('it is damaged: tensors on the GPU');
  const fed = [...inputs, ...[...plan.uploads, ...plan.unread].map(({ name }) => name)];
  check.object(values, 'values');
  for (const [name, place] of Object.entries(values)) {
    check.list(place, `the value of '${name}'`, (n) => check.integer(n, sections, `the value of '${name}'`), 2);
    if (!(place[0] + place[1] <= sections) || inputs.includes(name) || !fed.includes(name)) refuse(`it is damaged: the value of '${name}'`);
  }
  check.list(scalars, 'scalars', (scalar) => {
    const input = [...plan.uploads, ...plan.unread].find(({ name }) => name === scalar);
    if (input?.dims.length !== 0) refuse('it is damaged: scalars');
  }, 1 << 16);
  const made = [...outputs, ...[...plan.downloads, ...plan.kept].map(({ name }) => name)];
  checkNames([...fed, ...made], 'inputs and outputs');
  const written = plan.kept.filter((/** @type {SavedKept} */ { capacity, first }) => capacity >= 0 || first);
  checkNames(written.map((/** @type {SavedKept} */ { input }) => input), 'inputs that are written');
  checkNames(bound.map((name) => String(external.get(name).region[1])), 'the memory of tensors on the GPU');
  checkNames(header.inputs.map((/** @type {any} */ { name }) => name), 'its inputs');
  checkNames(header.outputs.map((/** @type {any} */ { name }) => name), 'its outputs');
  const types = new Map(header.outputs.map((/** @type {any} */ { name, type }) => [name, type]));
  const given = [...outputs.map((/** @type {string} */ name) => external.get(name)), ...plan.downloads, ...plan.kept];
  if (!given.length || given.some(({ name, type }) => types.get(name) !== type)) refuse('it is damaged: its outputs');
  for (const name of inputs) {
    const { given } = plan.kept.find((/** @type {SavedKept} */ kept) => kept.input === name && kept.given) ?? {};
    checkOpen(plan, (given ?? external.get(name)).scaled);
  }
}
