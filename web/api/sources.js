// @ts-check
/** Convert sources of a model or another file (URL, Blob, bytes) for Python. */

import { unlessAborted } from './aborting.js';
import { wrong } from './arguments.js';
import { bytesOf } from './marshalling.js';

/** @typedef {import('../pyruntime.js').ModelSource} ModelSource */
/** @typedef {import('./protocol.js').WireSource} WireSource */
/** @typedef {{signal?: AbortSignal, onProgress?: (event: import('../pyruntime.js').ProgressEvent) => void}} Reading */

/**
 * Convert to an absolute URL, a Blob, or a copy of the bytes, before the first await.
 * @param {string} name name of the argument
 * @param {ModelSource} source
 * @param {Reading} reading
 * @returns {WireSource | Promise<WireSource>}
 */
export function toSource(name, source, reading) {
  if (typeof source === 'string' || source instanceof URL) {
    return new URL(source, globalThis.document?.baseURI ?? globalThis.location.href).href;
  }
  if (source instanceof Blob) return source;
  if (ArrayBuffer.isView(source)) return bytesOf(source);
  if (source instanceof ArrayBuffer) return source.slice(0);
  if (typeof SharedArrayBuffer !== 'undefined' && source instanceof SharedArrayBuffer) {
    return bytesOf(new Uint8Array(new Uint8Array(source)));
  }
  const { then, getFile, kind } = /** @type {any} */ (source ?? {});
  if (typeof then === 'function') return unlessAborted(Promise.resolve(source), reading.signal).then((made) => toSource(name, made, reading));
  if (source instanceof Response || source instanceof ReadableStream || (typeof getFile === 'function' && kind === 'file')) {
    return import('./responses.js').then(({ fileOf }) => fileOf(name, /** @type {any} */ (source), reading));
  }
  throw wrong(name, 'a URL, a Blob, a Response, a ReadableStream, a FileSystemFileHandle, an ArrayBuffer or a typed array', source);
}

/**
 * Convert an external data file: an object with the model's path and the bytes, or a URL that is both.
 * @param {string | {path: string, data: ModelSource}} file
 * @param {Reading} reading
 * @returns {Promise<{path: string, data: WireSource}>}
 */
export async function toFile(file, reading) {
  const { path, data } = typeof file === 'string' ? { path: file, data: file } : file ?? {};
  if (typeof path !== 'string') throw wrong('an element of externalData', 'a URL, or an object with path and data', file);
  return { path: path.replace(/^\.\//, ''), data: await toSource(`externalData '${path}'`, data, reading) };
}

/** @param {unknown} value @returns {Transferable[]} */
export function transferable(value) {
  return value instanceof ArrayBuffer ? [value] : [];
}
