// @ts-check
/**
 * Memory for results, touched before it is needed. New memory is slow the first time it is written to: the system finds
 * and clears each page then, which takes several times as long as copying a result into it. So a thread of its own
 * makes and touches the memory for the next run of the same sizes.
 */

import { openThread } from './threads.js';

/** Bytes of a result from which on this pays: 0.4 ms for a token's logits. */
const LEAST_BYTES = 256 << 10;

/** Bytes from which on touching a result while the GPU works pays. */
const COLD_BYTES = 64 << 10;

/**
 * Bytes from which on a result is worth it when its size comes for the first time: a prompt's logits are 66 and 78 MB, reading them
 * takes 42 ms where most of that has not been touched, and 14 where it has (H200, slow processors).
 */
const LARGE_BYTES = 16 << 20;

/** Spare results of one size, and bytes of all of them, at most. */
const DEPTH = 2;
const KEPT_BYTES = 128 << 20;

/** Milliseconds without a run after which spare memory and the thread go, and what of it is of a size that nobody asked for. */
const IDLE_MS = 5_000;

const PAGE = 4096;

/** @type {Map<number, ArrayBuffer[]>} */
const spare = new Map();
/** Ordered and not yet there, by size. @type {Map<number, number>} */
const ordered = new Map();
/** When each size was asked for: of smaller ones only what comes again is worth it. @type {Map<number, number>} */
const known = new Map();
/** Sizes of which spare memory was taken, or would have been. @type {Set<number>} */
const wanted = new Set();
/** @type {import('./threads.js').Thread | null | undefined} null: this place allows none */
let thread;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let idle;

/**
 * Zeroed memory for a result of `nbytes`; `warm` says whether it has been touched, or is not worth it.
 * @param {number} nbytes
 * @returns {{bytes: Uint8Array<ArrayBuffer>, warm: boolean}}
 */
export function resultMemory(nbytes) {
  if (nbytes < LEAST_BYTES) return { bytes: new Uint8Array(nbytes), warm: nbytes < COLD_BYTES };
  const buffer = spare.get(nbytes)?.pop();
  if (known.has(nbytes) || nbytes >= LARGE_BYTES) wanted.add(nbytes);
  known.set(nbytes, performance.now());
  clearTimeout(idle);
  idle = setTimeout(forget, IDLE_MS);
  return { bytes: new Uint8Array(buffer ?? new ArrayBuffer(nbytes)), warm: buffer !== undefined };
}

/**
 * Write to each page of `bytes` from `start` to `end`, which hold nothing yet.
 * @param {Uint8Array} bytes
 * @param {number} start
 * @param {number} end
 */
export function touchPages(bytes, start, end) {
  for (let place = start; place < end; place += PAGE) bytes[place] = 0;
}

/** A run has its results: spare memory for the next one is made now. Before, it would be in the way of those. */
export function orderSpare() {
  const now = performance.now();
  for (const size of [...spare.keys()]) if (now - (known.get(size) ?? 0) > IDLE_MS) spare.delete(size);
  for (const nbytes of wanted) order(nbytes);
  wanted.clear();
}

/** @param {number} nbytes */
function order(nbytes) {
  const worker = helper();
  if (!worker) return;
  const others = [...spare.keys()].filter((size) => size !== nbytes);
  let held = 0;
  for (const size of new Set([...spare.keys(), ...ordered.keys()])) held += size * count(size);
  for (const size of others) {
    if (count(nbytes) || held + nbytes <= KEPT_BYTES) break;
    held -= size * (spare.get(size)?.length ?? 0);
    spare.delete(size);
  }
  while (count(nbytes) < DEPTH && held + nbytes <= KEPT_BYTES) {
    worker.post(nbytes);
    ordered.set(nbytes, (ordered.get(nbytes) ?? 0) + 1);
    held += nbytes;
  }
}

/** Spare and ordered results of a size. @param {number} nbytes */
function count(nbytes) {
  return (spare.get(nbytes)?.length ?? 0) + (ordered.get(nbytes) ?? 0);
}

function helper() {
  if (thread !== undefined) return thread;
  thread = openThread('memory', keep, () => {
    forget();
    thread = null;
  });
  return thread;
}

/** @param {ArrayBuffer} buffer */
function keep(buffer) {
  const size = buffer.byteLength;
  ordered.set(size, (ordered.get(size) ?? 1) - 1);
  const made = [...spare.get(size) ?? [], buffer];
  spare.delete(size); // those that were made last are last
  spare.set(size, made);
}

function forget() {
  thread?.end();
  thread = thread === null ? null : undefined;
  for (const state of [spare, ordered, known, wanted]) state.clear();
}
