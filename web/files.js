// @ts-check
/**
 * Large files outside this thread's memory: the browser keeps them as Blobs, and parts are read when they are needed.
 * Only workers can read them synchronously, as Python does; elsewhere all files are ArrayBuffers.
 */

import { fetchResponse } from './runtime.js';

/** Bytes from which on a file stays a Blob where it can. */
const BIG = 32 << 20;

const readsBlobs = 'FileReaderSync' in globalThis;

/**
 * A file's bytes as Python takes them.
 * @param {Blob} blob
 * @returns {Promise<ArrayBuffer> | Blob}
 */
export function inPlace(blob) {
  return readsBlobs && blob.size >= BIG ? blob : blob.arrayBuffer();
}

/**
 * The file at `url`.
 * @param {string} url
 * @param {(loaded: number, total: number | undefined) => void} onProgress
 * @param {AbortSignal} [signal]
 * @returns {Promise<ArrayBuffer | Blob>}
 */
export async function fetchFile(url, onProgress, signal) {
  const { response, total } = await fetchResponse(url, onProgress, signal);
  if (!readsBlobs || (total !== undefined && total < BIG)) return response.arrayBuffer();
  const blob = await response.blob().catch((error) => {
    signal?.throwIfAborted();
    throw new RangeError(`the browser has no room for ${url} (${total?.toLocaleString('en') ?? 'unknown'} bytes): `
      + `${error.message}. Use a window that is not private, free disk space, or take a smaller model`);
  });
  return inPlace(blob);
}
