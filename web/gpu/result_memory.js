// @ts-check
/**
 * Memory for large results, whose pages are mapped before it is needed. The system maps and clears each page of new memory at its
 * first write, which takes several times as long as copying a result into it (docs/decisions/0001). So the download thread, where
 * there is one, allocates memory for the next run of the same sizes.
 */

import { resultMemory } from './readback.js';

/** Bytes of a result from which on this pays: a token's logits. */
const LEAST = 256 << 10;

/** Spare results of one size, and bytes of all of them, at most. */
const DEPTH = 2;
const MOST = 128 << 20;

/** Milliseconds without a large result after which spare memory goes. */
const IDLE_MS = 5000;

/** By size. @type {Map<number, ArrayBuffer[]>} */
const spare = new Map();
/** Ordered and not yet there, by size. @type {Map<number, number>} */
const ordered = new Map();
/** @type {ReturnType<typeof setTimeout> | undefined} */
let idle;
/** @type {((nbytes: number) => Promise<ArrayBuffer>) | null} */
let make = null;

/** Have memory of results made by another thread. @param {(nbytes: number) => Promise<ArrayBuffer>} maker gives zeroed memory in place */
export function makeMemoryBy(maker) {
  make = maker;
  Object.assign(resultMemory, { take, taken });
}

/** @type {typeof resultMemory.take} */
function take(nbytes) {
  const buffer = spare.get(nbytes)?.pop();
  return { bytes: new Uint8Array(buffer ?? new ArrayBuffer(nbytes)), isReady: buffer !== undefined };
}

/** Order memory for the next run. Earlier it would be in the way of the results. @type {typeof resultMemory.taken} */
function taken(sizes) {
  const large = sizes.filter((nbytes) => nbytes >= LEAST);
  if (!make || !large.length) return;
  clearTimeout(idle);
  idle = setTimeout(() => spare.clear(), IDLE_MS);
  for (const nbytes of large) {
    if (held() + nbytes > MOST) for (const size of spare.keys()) if (!large.includes(size)) spare.delete(size);
    while (countOf(nbytes) < DEPTH && held() + nbytes <= MOST) order(nbytes, make);
  }
}

/** @param {number} nbytes @param {(nbytes: number) => Promise<ArrayBuffer>} maker */
function order(nbytes, maker) {
  ordered.set(nbytes, (ordered.get(nbytes) ?? 0) + 1);
  maker(nbytes).then((buffer) => {
    spare.set(nbytes, [...spare.get(nbytes) ?? [], buffer]);
  }, () => { make = null; }).finally(() => { // it fails with its thread
    ordered.set(nbytes, (ordered.get(nbytes) ?? 1) - 1);
  });
}

/** Spare and ordered results of a size. @param {number} nbytes */
function countOf(nbytes) {
  return (spare.get(nbytes)?.length ?? 0) + (ordered.get(nbytes) ?? 0);
}

/** Bytes of all of them. */
function held() {
  return [...new Set([...spare.keys(), ...ordered.keys()])].reduce((sum, size) => sum + size * countOf(size), 0);
}
