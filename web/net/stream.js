// @ts-check
/**
 * Fetch a file as a stream of chunks. After a broken connection the download resumes by a range request or, if the server does not support
 * them, by the whole file again without the bytes that have arrived. All responses are verified to be of one file; otherwise the error is
 * `isChanged`, and the file has to be fetched again, bypassing the browser's cache (`anew`).
 *
 * Source: RFC 9110, sections 8.8 (validators) and 14 (range requests).
 */

import { checkFits } from './memory.js';
import { strongTag } from './tags.js';
import { filled, readerInto, reading } from './reading.js';

/** @typedef {import('./reading.js').Buffers} Buffers */

/** Milliseconds before each attempt to resume; begins anew after an attempt that brought `ENOUGH` bytes. */
const PAUSES = [0, 250, 500, 1000, 2000];
const ENOUGH = 1 << 16;

/** Bytes that are put into one Blob. */
const BLOCK = 8 << 20;

/** Milliseconds after the end of a response within which the browser records its timing, if at all. */
const NOTED_MS = 500;

/** The server has no such file. Same name and meaning as Python's class. */
class NoSuchFile extends Error {
  name = 'NoSuchFile';
  /** The HTTP status; 0 without a response. */
  status = 0;
}

/** The received data is incomplete or wrong. Same name and meaning as Python's class. */
class Fail extends Error {
  name = 'Fail';
}

/**
 * @typedef {object} Opened
 * @property {number | undefined} size in bytes, if the server sends it. For another origin it may be the size of a
 * compressed form: `Content-Encoding` is hidden there.
 * @property {boolean} isExact whether `size` counts the bytes that arrive
 * @property {Response} response the first response; its body must not be read
 * @property {string} validator changes with the file; '' if the server sends none
 * @property {(buffers?: Buffers) => AsyncGenerator<Uint8Array<ArrayBuffer>>} chunks the chunks, for one reader. With
 *   `buffers`, chunks are in these until the connection breaks, and the reader returns each buffer
 * @property {() => Promise<boolean>} isCached whether it came from the browser's cache without a request, as far as the browser
 *   reports it; known at the end
 *
 * @typedef {object} Known properties of the file, from the first response
 * @property {number | undefined} size
 * @property {boolean} isExact whether `size` counts the bytes that arrive
 * @property {boolean} isEncoded whether range requests would refer to other (encoded) bytes than those that arrive
 * @property {string} validator
 */

/**
 * Request the file at `url`.
 * @param {string} url
 * @param {AbortSignal} [signal]
 * @param {RequestCache} [cache]
 * @returns {Promise<Opened>}
 */
export async function openStream(url, signal, cache = 'default') {
  const noted = noteOf(url);
  const response = await fetch(url, { signal, cache }).catch((error) => {
    noted.stop();
    signal?.throwIfAborted();
    throw new NoSuchFile(`${url} cannot be fetched: ${error.message}`);
  });
  noted.answered();
  if (!response.ok || !response.body) {
    noted.stop();
    const error = new NoSuchFile(`${url} cannot be fetched: HTTP status ${response.status} ${response.statusText}`);
    throw Object.assign(error, { status: response.status });
  }
  const isEncoded = response.headers.has('Content-Encoding');
  const length = isEncoded ? null : response.headers.get('Content-Length');
  const size = length === null ? undefined : Number(length);
  try {
    checkFits(url, size ?? 0);
  } catch (error) {
    noted.stop();
    response.body.cancel().catch(() => {});
    throw error;
  }
  const validator = validatorOf(response);
  const known = { size, isExact: response.type !== 'cors', isEncoded, validator };
  const note = validator && cache !== 'reload' ? noted.note : () => Promise.resolve(null);
  return {
    size,
    isExact: known.isExact,
    response,
    validator,
    chunks: (buffers) => noting(noted, chunks(url, response, known, note, signal, buffers)),
    isCached: async () => cache !== 'reload' && !(await noted.note())?.transferSize,
  };
}

/** Return the response header that changes with the file. Weak ETags do not distinguish bytes. @param {Response} response */
export function validatorOf(response) {
  return strongTag(response) || (response.headers.get('Last-Modified') ?? '');
}

/** @param {string} url @param {string} why */
export function changed(url, why) {
  return Object.assign(new Fail(`${url} changed while it was read (${why}): load it again`), { isChanged: true });
}

/**
 * Await `work`; call it again, bypassing the browser's cache, if a file changed while it was read.
 * @template T
 * @param {(cache?: RequestCache) => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function anew(work) {
  try {
    return await work();
  } catch (error) {
    if (!(/** @type {any} */ (error)?.isChanged)) throw error;
    return work('reload');
  }
}

/**
 * Fetch a whole file as a Blob; again, bypassing the browser's cache, if it changed meanwhile.
 * @param {string} url
 * @param {object} [options]
 * @param {AbortSignal} [options.signal]
 * @param {(loaded: number, total: number | undefined) => void} [options.onProgress]
 * @param {RequestCache} [options.cache]
 */
export function fetchAll(url, { signal, onProgress, cache } = {}) {
  return anew(async (again = cache) => {
    const { size, chunks: read } = await openStream(url, signal, again);
    /** @type {BlobPart[]} */
    let parts = [];
    let [loaded, held] = [0, 0];
    for await (const chunk of read()) {
      parts.push(chunk);
      loaded += chunk.length;
      held += chunk.length;
      if (held >= BLOCK) [parts, held] = [[new Blob(parts)], 0]; // which is stored outside this process
      onProgress?.(loaded, size);
    }
    return new Blob(parts);
  });
}

/** Return the timing entry of the request for `url` that follows; null if the browser records none. @param {string} url */
function noteOf(url) {
  const { href } = new URL(url, globalThis.location.href);
  const from = performance.now() - 2; // clocks may have a low resolution
  let until = Infinity;
  /** @type {PerformanceResourceTiming[]} */
  const seen = [];
  let tell = () => {};
  const isNoted = 'PerformanceObserver' in globalThis && /^https?:/.test(href);
  const observer = isNoted ? new PerformanceObserver((list) => {
    seen.push(.../** @type {PerformanceResourceTiming[]} */ (list.getEntriesByName(href)));
    tell();
  }) : null;
  observer?.observe({ type: 'resource' });
  // Other requests for parts of the file start after this one's response.
  const find = () => seen.find(({ startTime }) => startTime >= from && startTime <= until) ?? null;
  /** @type {Promise<PerformanceResourceTiming | null> | undefined} */
  let found;
  return {
    answered() {
      until = performance.now();
    },
    stop: () => observer?.disconnect(),
    /** Called when the response has ended. */
    note() {
      found ??= new Promise((resolve) => {
        const timer = setTimeout(resolve, observer ? NOTED_MS : 0, null);
        tell = () => {
          const one = find();
          if (!one) return;
          clearTimeout(timer);
          resolve(one);
        };
        tell();
      }).finally(() => observer?.disconnect());
      return found;
    },
  };
}

/**
 * Yield the chunks; at their end, await the timing entry.
 * @param {ReturnType<typeof noteOf>} noted
 * @param {AsyncGenerator<Uint8Array<ArrayBuffer>>} all
 */
async function* noting(noted, all) {
  let isOver = false;
  try {
    yield* all;
    isOver = true;
    noted.note();
  } finally {
    if (!isOver) noted.stop();
  }
}

/**
 * @param {string} url
 * @param {Response} first
 * @param {Known} known
 * @param {() => Promise<PerformanceResourceTiming | null>} note
 * @param {AbortSignal} [signal]
 * @param {Buffers} [buffers]
 * @returns {AsyncGenerator<Uint8Array<ArrayBuffer>>}
 */
async function* chunks(url, first, known, note, signal, buffers) {
  /** @type {Response | null} */
  let response = first;
  let [loaded, attempt, repeated, since] = [0, 0, 0, 0];
  for (;;) {
    /** @type {unknown} */
    let why = new Error('it ended early');
    if (response) {
      const isFirst = response === first;
      const reader = readerOf(/** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (response.body), isFirst ? buffers : undefined);
      try {
        for (let step = await reader.next(); ; step = await reader.next()) {
          if ('error' in step) {
            why = step.error;
            break;
          }
          if (!step.value) {
            if (!isWhole(loaded, known)) break;
            if (isFirst && await isJoined(url, loaded, known, note, signal)) throw changed(url, 'the browser had kept a part of it');
            return;
          }
          const fresh = step.value.subarray(Math.min(repeated, step.value.length));
          repeated -= step.value.length - fresh.length;
          if (!fresh.length) continue;
          since += fresh.length;
          if (since >= ENOUGH) attempt = 0;
          loaded += fresh.length;
          checkFits(url, loaded, 'at least ');
          if (known.isExact && loaded > (known.size ?? Infinity)) throw changed(url, `more came than ${count(loaded, known.size)}`);
          yield fresh;
        }
      } finally {
        reader.cancel().catch(() => {});
      }
    }
    signal?.throwIfAborted();
    if (attempt === PAUSES.length || !known.validator) throw broken(url, loaded, known, why);
    await pause(PAUSES[attempt++], signal);
    since = 0;
    const again = await goOn(url, loaded, known, signal);
    if (again === 'whole') return;
    response = again?.response ?? null;
    repeated = again?.repeated ?? 0;
  }
}

/**
 * Return a function that reads a response into `buffers`, filling each; else chunk by chunk. A broken connection loses the bytes in a
 * buffer, so responses that resume one are read without buffers.
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

/** Return whether a response that has ended was complete. @param {number} loaded @param {Known} known */
function isWhole(loaded, { size, isExact }) {
  return size === undefined || loaded === size || (!isExact && loaded > size);
}

/**
 * Return whether the browser may have combined parts of two files: it had cached the start of this one, requested the rest by Range and
 * If-Range, and accepts a 206 of servers that ignore the latter. If the file is unchanged, both parts are of the same file.
 * @param {string} url
 * @param {number} loaded
 * @param {Known} known
 * @param {() => Promise<PerformanceResourceTiming | null>} note
 * @param {AbortSignal} [signal]
 */
async function isJoined(url, loaded, known, note, signal) {
  if (known.isEncoded || known.size !== loaded) return false;
  const came = (await note())?.encodedBodySize;
  if (!came || came >= loaded) return false;
  const now = await fetch(url, { method: 'HEAD', cache: 'no-store', signal }).catch(() => null);
  signal?.throwIfAborted();
  return !now?.ok || validatorOf(now) !== known.validator;
}

/**
 * Request the rest of a file after `loaded` bytes. Returns the response and how many of its bytes are `repeated`; null if the server does
 * not respond now, 'whole' if the file ends there.
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
  if (response.status === 416) throw changed(url, `it ends before ${count(loaded, known.size)}`);
  if (!response.ok || !response.body) {
    throw new Fail(`${url}: the connection broke after ${count(loaded, known.size)}, and to go on the server answers `
      + `HTTP status ${response.status} ${response.statusText}`);
  }
  if (validatorOf(response) !== known.validator) {
    throw changed(url, `it was ${known.validator}, it is ${validatorOf(response) || 'unknown'}`);
  }
  const range = /^bytes (\d+)-\d+\/(\d+)?/.exec(response.headers.get('Content-Range') ?? '');
  const total = response.status === 206 ? range?.[2] : !known.isEncoded && response.headers.get('Content-Length');
  if (known.isExact && known.size !== undefined && total && Number(total) !== known.size) {
    throw changed(url, `it had ${known.size} bytes, it has ${total}`);
  }
  if (response.status !== 206) return { response, repeated: loaded };
  if (range && Number(range[1]) !== loaded) {
    throw new Fail(`${url}: the server was asked for bytes from ${loaded} on and sent those from ${range[1]} on`);
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
