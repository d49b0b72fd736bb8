// @ts-check
/** What a model or another file is given as, as it crosses to Python. */

import { unlessAborted } from './aborting.js';
import { described, wrong } from './arguments.js';
import { bytesOf } from './wire.js';

/** @typedef {import('./pyruntime.js').ModelSource} ModelSource */
/** @typedef {import('./protocol.js').WireSource} WireSource */
/** @typedef {{signal?: AbortSignal, onProgress?: (event: import('./pyruntime.js').ProgressEvent) => void}} Reading */

/**
 * An absolute URL, a Blob, or bytes of its own: a copy, made before the first wait.
 * @param {string} name of the argument
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
  if (source instanceof Response) return fromResponse(name, source, reading);
  if (source instanceof ReadableStream) return fromStream(name, source, undefined, reading);
  const { then, getFile, kind } = /** @type {any} */ (source ?? {});
  if (typeof then === 'function') return unlessAborted(Promise.resolve(source), reading.signal).then((made) => toSource(name, made, reading));
  if (typeof getFile === 'function' && kind === 'file') return fromHandle(name, /** @type {FileSystemFileHandle} */ (source));
  throw wrong(name, 'a URL, a Blob, a Response, a ReadableStream, a FileSystemFileHandle, an ArrayBuffer or a typed array', source);
}

/** @param {string} name @param {Response} response @param {Reading} reading */
async function fromResponse(name, response, reading) {
  const { body, bodyUsed, headers, ok, status, statusText, url } = response;
  if (!ok) throw Object.assign(new Error(`${name}: ${url || 'the Response'} has HTTP status ${status} ${statusText}`), { name: 'NoSuchFile' });
  if (bodyUsed || !body) throw new TypeError(`${name} is a Response ${body ? 'that was read before: give a clone() of it' : 'without a body'}`);
  const length = headers.has('Content-Encoding') ? null : headers.get('Content-Length');
  return fromStream(name, body, length ? Number(length) : undefined, reading);
}

/**
 * What a stream brings; the browser keeps it, on disk where it is large.
 * @param {string} name
 * @param {ReadableStream<Uint8Array>} stream
 * @param {number | undefined} total
 * @param {Reading} reading
 * @returns {Promise<Blob>}
 */
async function fromStream(name, stream, total, { signal, onProgress = () => {} }) {
  if (stream.locked) throw new TypeError(`${name} is a ReadableStream that something else reads`);
  let loaded = 0;
  const counted = new TransformStream({
    transform(chunk, controller) {
      if (!(chunk instanceof Uint8Array)) throw new TypeError(`its chunks must be Uint8Arrays, not ${described(chunk)}`);
      loaded += chunk.length;
      onProgress({ phase: 'model', status: 'progress', loaded, total });
      controller.enqueue(chunk);
    },
  });
  /** What Response does not tell. @type {any} */
  let why;
  const piped = stream.pipeTo(counted.writable, { signal }).catch((error) => { why = error; });
  try {
    return await new Response(counted.readable).blob();
  } catch {
    signal?.throwIfAborted();
    await piped;
    throw Object.assign(new Error(`${name}: the stream broke off after ${loaded} bytes: ${why?.message ?? why}`), { name: 'Fail' });
  }
}

/** @param {string} name @param {FileSystemFileHandle} handle */
async function fromHandle(name, handle) {
  return handle.getFile().catch((error) => {
    throw Object.assign(new Error(`${name}: the file '${handle.name}' cannot be read: ${error.message}`), { name: 'NoSuchFile' });
  });
}

/**
 * A file that the model names: by its place in the model and where its bytes are, or by an address that is both.
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
