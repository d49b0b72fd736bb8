// @ts-check
/**
 * A file as its bytes arrive. Where the connection breaks, it goes on from there: by a range request, or, where the server
 * has none, by the whole file again without what is here already. That it is still the same file is checked.
 * Source: RFC 9110, sections 8.8 (validators) and 14 (range requests).
 */

import { strongTag } from '../tags.js';
import { filled, readerInto, reading } from '../reading.js';

/** @typedef {import('../reading.js').Buffers} Buffers */

/** Milliseconds before each attempt to go on, as long as none brings a byte. */
const PAUSES = [0, 250, 500, 1000, 2000];

/** The server does not have what a URL names. Python's class of that name means the same. */
class NoSuchFile extends Error {
  name = 'NoSuchFile';
}

/** What came is not what was to come. Python's class of that name means the same. */
class Fail extends Error {
  name = 'Fail';
}

/**
 * @typedef {object} Opened
 * @property {number | undefined} size in bytes where the server tells. What another origin tells may be the size of a
 * compressed form: `Content-Encoding` cannot be seen there.
 * @property {boolean} isExact whether `size` counts the bytes that arrive
 * @property {Response} response the server's first answer; its body is not to be read
 * @property {(buffers?: Buffers) => AsyncGenerator<Uint8Array<ArrayBuffer>>} chunks to be read once; with `buffers` they are in
 * these, as long as the connection holds, and whoever takes a chunk gives its buffer back
 *
 * @typedef {object} Known what is known of the file from its first response
 * @property {number | undefined} size
 * @property {boolean} isExact whether `size` counts the bytes that arrive
 * @property {boolean} isEncoded whether ranges would be of other bytes than those that arrive
 * @property {string} validator changes with the file; '' where the server gives none
 */

/**
 * Ask for the file at `url`.
 * @param {string} url
 * @param {AbortSignal} [signal]
 * @returns {Promise<Opened>}
 */
export async function openStream(url, signal) {
  const response = await fetch(url, { signal }).catch((error) => {
    signal?.throwIfAborted();
    throw new NoSuchFile(`${url} cannot be fetched: ${error.message}`);
  });
  if (!response.ok || !response.body) {
    throw new NoSuchFile(`${url} cannot be fetched: HTTP status ${response.status} ${response.statusText}`);
  }
  const isEncoded = response.headers.has('Content-Encoding');
  const length = isEncoded ? null : response.headers.get('Content-Length');
  const size = length === null ? undefined : Number(length);
  const known = { size, isExact: response.type !== 'cors', isEncoded, validator: validatorOf(response) };
  return { size, isExact: known.isExact, response, chunks: (buffers) => chunks(url, response, known, signal, buffers) };
}

/** What a server says that changes with the file. Weak tags do not tell bytes apart. @param {Response} response */
function validatorOf(response) {
  return strongTag(response) || (response.headers.get('Last-Modified') ?? '');
}

/**
 * @param {string} url
 * @param {Response} first
 * @param {Known} known
 * @param {AbortSignal} [signal]
 * @param {Buffers} [buffers]
 * @returns {AsyncGenerator<Uint8Array<ArrayBuffer>>}
 */
async function* chunks(url, first, known, signal, buffers) {
  /** @type {Response | null} */
  let response = first;
  let [loaded, attempt, repeated] = [0, 0, 0];
  for (;;) {
    /** @type {unknown} */
    let why = new Error('it ended early');
    if (response) {
      const reader = readerOf(/** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (response.body), attempt ? undefined : buffers);
      try {
        for (let step = await reader.next(); ; step = await reader.next()) {
          if ('error' in step) {
            why = step.error;
            break;
          }
          if (!step.value) {
            if (isWhole(loaded, known)) return;
            break;
          }
          const fresh = step.value.subarray(Math.min(repeated, step.value.length));
          repeated -= step.value.length - fresh.length;
          if (!fresh.length) continue;
          attempt = 0;
          loaded += fresh.length;
          yield fresh;
        }
      } finally {
        reader.cancel().catch(() => {});
      }
    }
    signal?.throwIfAborted();
    if (attempt === PAUSES.length || !known.validator) throw broken(url, loaded, known, why);
    await pause(PAUSES[attempt++], signal);
    const again = await goOn(url, loaded, known, signal);
    if (again === 'whole') return;
    response = again?.response ?? null;
    repeated = again?.repeated ?? 0;
  }
}

/**
 * What reads a response: into `buffers`, each filled; else what comes as it comes. A broken connection takes what is in a buffer
 * with it, so responses that go on behind one are read without.
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} body
 * @param {Buffers} [buffers]
 */
function readerOf(body, buffers) {
  const failed = (/** @type {unknown} */ error) => ({ error, value: undefined });
  if (buffers) {
    const { read, cancel } = readerInto(body);
    const next = () => filled(read, buffers.take()).then((value) => ({ value: value.length ? value : undefined }), failed);
    return { next, cancel };
  }
  const reader = reading(body.getReader());
  return { next: () => reader.read().catch(failed), cancel: () => reader.cancel() };
}

/** Whether a response that has ended was all. @param {number} loaded @param {Known} known */
function isWhole(loaded, { size, isExact }) {
  return size === undefined || loaded === size || (!isExact && loaded > size);
}

/**
 * The response that goes on behind `loaded` bytes, and how many of its own are `repeated` ones; null where the server does
 * not answer now, 'whole' where there is nothing behind them.
 * @param {string} url
 * @param {number} loaded
 * @param {Known} known
 * @param {AbortSignal} [signal]
 */
async function goOn(url, loaded, known, signal) {
  const headers = known.isEncoded ? undefined : { Range: `bytes=${loaded}-` };
  const response = await fetch(url, { headers, signal, cache: 'no-store' }).catch(() => null);
  signal?.throwIfAborted();
  if (!response || response.status >= 500 || response.status === 429) return null;
  if (response.status === 416 && !known.isExact) return 'whole';
  if (!response.ok || !response.body) {
    throw new Fail(`${url}: the connection broke after ${count(loaded, known.size)}, and to go on the server answers `
      + `HTTP status ${response.status} ${response.statusText}`);
  }
  if (validatorOf(response) !== known.validator) {
    throw new Fail(`${url} changed while it was read (it was ${known.validator}, it is ${validatorOf(response) || 'unknown'}): `
      + 'load it again');
  }
  if (response.status !== 206) return { response, repeated: loaded };
  const from = /^bytes (\d+)-/.exec(response.headers.get('Content-Range') ?? '');
  if (from && Number(from[1]) !== loaded) {
    throw new Fail(`${url}: the server was asked for bytes from ${loaded} on and sent those from ${from[1]} on`);
  }
  return { response, repeated: 0 };
}

/** @param {string} url @param {number} loaded @param {Known} known @param {unknown} why */
function broken(url, loaded, { size, validator }, why) {
  const hint = validator ? 'try again later'
    : 'the server gives neither ETag nor Last-Modified, so that it cannot go on from there: load it again';
  return new Fail(`${url}: the connection broke after ${count(loaded, size)} (${/** @type {Error} */ (why).message}); ${hint}`);
}

/** @param {number} loaded @param {number | undefined} size */
function count(loaded, size) {
  const format = (/** @type {number} */ bytes) => bytes.toLocaleString('en');
  return `${format(loaded)} of ${size === undefined ? 'an unknown number of' : format(size)} bytes`;
}

/** @param {number} ms @param {AbortSignal} [signal] */
async function pause(ms, signal) {
  await new Promise((resolve) => { setTimeout(resolve, ms); });
  signal?.throwIfAborted();
}
