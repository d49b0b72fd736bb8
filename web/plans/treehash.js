// @ts-check
/** Compute the hash of a model file (`tree_hash` of `pyruntime/compiler/saved.py`): the hash of its blocks' hashes. */

import { BlobReader } from '../net/blobs.js';

/** Bytes that are hashed together. */
export const BLOCK = 4 << 20;

/** @param {Uint8Array} bytes */
export function hex(bytes) {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Hash the concatenated hashes of blocks. @param {number[]} hashes */
export async function ofHashes(hashes) {
  return hex(new Uint8Array(await crypto.subtle.digest('SHA-256', new Uint8Array(hashes))));
}

/**
 * Of a whole file.
 * @param {import('../loading/loading.js').Held} file
 */
export async function treeHash(file) {
  const size = /** @type {number} */ ('byteLength' in file ? file.byteLength : file.size);
  const from = file instanceof Blob ? new BlobReader(file) : file;
  const hashes = [];
  const copy = new Uint8Array(Math.min(BLOCK, size));
  for (let at = 0; at < size; at += BLOCK) {
    const block = await part(from, at, copy.subarray(0, size - at));
    hashes.push(...new Uint8Array(await crypto.subtle.digest('SHA-256', block)));
  }
  return ofHashes(hashes);
}

/**
 * The bytes at `at`, as many as `copy` has; in it, where they are not in memory.
 * @param {BlobReader | Exclude<import('../loading/loading.js').Held, Blob>} file
 * @param {number} at
 * @param {Uint8Array<ArrayBuffer>} copy
 */
async function part(file, at, copy) {
  if (file instanceof ArrayBuffer) return new Uint8Array(file, at, copy.length);
  await file.copyInto(at, copy);
  return copy;
}
