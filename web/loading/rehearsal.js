// @ts-check
/**
 * What a download does to find a model's graph, done with a file that is made up, before there is any: the first time JavaScript
 * takes several times as long, and planning waits for it.
 */

import { foretell, put } from './foretold.js';
import { blank, partsOf, scanned } from './outline.js';
import { Scanner } from './scanner.js';

/** Nodes and tensors of the file, and bytes of those among them that nobody looks into. */
const NODES = 50;
const TENSORS = 120;
const LARGE = 70_000;

/** How often it is done: by then a browser has compiled what is done for each tensor. */
const TIMES = 3;

/** A message of numbers and of texts or messages, by their fields. @param {[field: number, value: number | ArrayLike<number>][]} fields */
function of(...fields) {
  /** @type {number[]} */
  const bytes = [];
  for (const [field, value] of fields) {
    const isNumber = typeof value === 'number';
    bytes.push(field * 8 + (isNumber ? 0 : 2));
    put(bytes, isNumber ? value : value.length);
    if (!isNumber) for (let i = 0; i < value.length; i++) bytes.push(value[i]);
  }
  return bytes;
}

/** @param {Uint8Array} name @param {number} elements */
function typed(name, elements) {
  return of([1, name], [2, of([1, of([1, 1], [2, of([1, of([1, elements])])])])]);
}

/** A model as torch.onnx writes it, of zeros. */
function file() {
  const utf8 = (/** @type {string} */ text) => new TextEncoder().encode(text);
  /** Bytes, and how many zeros are behind them. @type {[bytes: number[], zeros: number][]} */
  const graph = [];
  const tensors = Array.from({ length: TENSORS }, (_, i) => ({ name: utf8(`layer.${i}.weight`), elements: i % 40 ? 8 + i : LARGE / 4 }));
  for (let i = 0; i < NODES; i++) graph.push([of([1, of([1, utf8(`v${i}`)], [2, utf8(`v${i + 1}`)], [4, utf8('Relu')])]), 0]);
  for (const { name, elements } of tensors) {
    const head = [...of([1, elements], [2, 1], [8, name]), 9 * 8 + 2];
    put(head, 4 * elements);
    const bytes = [5 * 8 + 2];
    put(bytes, head.length + 4 * elements);
    graph.push([bytes.concat(head), 4 * elements]);
  }
  graph.push([of([11, typed(utf8('v0'), 16)], [12, typed(utf8(`v${NODES}`), 16)]), 0]);
  for (const { name, elements } of tensors) graph.push([of([13, typed(name, elements)]), 0]);
  const nbytes = graph.reduce((sum, [bytes, zeros]) => sum + bytes.length + zeros, 0);
  const front = [7 * 8 + 2];
  put(front, nbytes);
  const made = new Uint8Array(front.length + nbytes);
  made.set(front);
  let at = front.length;
  for (const [bytes, zeros] of graph) {
    made.set(bytes, at);
    at += bytes.length + zeros;
  }
  return made;
}

/** Whether all of it was done. */
export function rehearse() {
  const bytes = file();
  const at = bytes.length - 12_000;
  const tail = { at, bytes: bytes.subarray(at) };
  let isDone = true;
  for (let time = 0; time < TIMES; time++) {
    const stream = new Scanner(bytes.length, 0);
    stream.push(bytes.subarray(0, LARGE));
    const told = foretell(tail, stream.tensors, stream.graphEnd);
    const parts = told && partsOf(told, tail, stream, 8 * bytes.length);
    isDone &&= Boolean(told && parts && scanned(told, tail, blank(parts, told.tensors), stream, bytes.length));
  }
  return isDone;
}
