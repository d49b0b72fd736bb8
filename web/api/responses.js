// @ts-check
/** Read sources that have to be read in advance: responses, streams and file handles. */

import { described } from './arguments.js';

/** @typedef {import('./sources.js').Reading} Reading */

/**
 * @param {string} name name of the argument
 * @param {Response | ReadableStream | FileSystemFileHandle} source
 * @param {Reading} reading
 * @returns {Promise<Blob>}
 */
export function fileOf(name, source, reading) {
  if (source instanceof Response) return fromResponse(name, source, reading);
  return source instanceof ReadableStream ? fromStream(name, source, undefined, reading) : fromHandle(name, source);
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
 * Read a stream into a Blob, which the browser keeps, on disk if it is large.
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
  /** The error of the stream, which Response does not expose. @type {any} */
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
