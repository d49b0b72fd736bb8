// @ts-check
/** Files of this site, cached for later visits, with progress during downloads. */

import { blobOf, outOfStorage } from '../../../net/parts.js';
import { anew, openStream } from '../../../net/stream.js';
import * as store from './store.js';

/** Milliseconds of the past that the speed is averaged over. */
const WINDOW_MS = 4000;

/** Bytes that are passed to Blob storage at a time. */
const BLOCK = 8 << 20;

/** @typedef {{loaded: number, total: number, bytesPerSecond: number, secondsLeft: number | null}} Progress */

/** Measures the speed of a download and estimates its remaining time. */
export class Pace {
  constructor(now = performance.now()) {
    this.marks = [{ at: now, loaded: 0 }];
  }

  /** @param {number} loaded @param {number} total 0 if unknown @param {number} [now] @returns {Progress} */
  mark(loaded, total, now = performance.now()) {
    this.marks.push({ at: now, loaded });
    while (this.marks.length > 2 && now - this.marks[1].at > WINDOW_MS) this.marks.shift();
    const [first] = this.marks;
    const seconds = (now - first.at) / 1000;
    const bytesPerSecond = seconds > 0 ? (loaded - first.loaded) / seconds : 0;
    const left = total && bytesPerSecond > 0 ? (total - loaded) / bytesPerSecond : null;
    return { loaded, total, bytesPerSecond, secondsLeft: left };
  }
}

/** Stamp of a file whose server sends no validators: the file itself is requested. */
const UNTOLD = { etag: '', modified: '', size: -1 };

/** Request a file's validators from the server; null without a response. @param {URL} url @param {AbortSignal} signal */
async function ask(url, signal) {
  try {
    const response = await fetch(url, { method: 'HEAD', cache: 'no-cache', signal });
    return response.ok ? store.stampOf(response) : UNTOLD;
  } catch (error) {
    signal.throwIfAborted();
    return null;
  }
}

/**
 * Return the file at `url`, from the cache if it is unchanged.
 * @param {URL} url
 * @param {object} options
 * @param {AbortSignal} options.signal
 * @param {(progress: Progress) => void} [options.onProgress]
 * @param {(chunk: Uint8Array<ArrayBuffer>, loaded: number, total: number) => Promise<void> | void} [options.onChunk] awaited
 *   before the next bytes; if the file changed during the download, `loaded` restarts
 * @returns {Promise<{blob: Blob, kept: boolean}>}
 */
export async function download(url, options) {
  const known = await store.find(url.href, await ask(url, options.signal));
  if (known) return { blob: known, kept: true };
  return anew((cache) => fetched(url, options, cache));
}

/**
 * @param {URL} url
 * @param {Parameters<typeof download>[1]} options
 * @param {RequestCache} [cache]
 */
async function fetched(url, { signal, onProgress, onChunk }, cache = 'no-cache') {
  const { response, size: total = 0, chunks } = await openStream(url.href, signal, cache);
  const pace = new Pace();
  /** @type {Blob[]} */
  const parts = [];
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const pending = [];
  let [loaded, handed] = [0, 0];
  const handOver = async () => {
    if (pending.length) parts.push(await blobOf(pending.splice(0)).catch((error) => { throw outOfStorage(url.href, loaded, error); }));
    handed = loaded;
  };
  for await (const chunk of chunks()) {
    pending.push(chunk);
    loaded += chunk.length;
    if (loaded - handed >= BLOCK) await handOver();
    onProgress?.(pace.mark(loaded, total));
    const before = performance.now();
    await onChunk?.(chunk, loaded, total);
    if (performance.now() - before > WINDOW_MS) Object.assign(pace, new Pace());
    signal.throwIfAborted();
  }
  await handOver();
  const blob = new Blob(parts);
  const stamp = store.stampOf(response);
  const isOnDisk = await store.add(url.href, stamp, blob) === 'disk';
  return { blob: (isOnDisk && await store.find(url.href, stamp)) || blob, kept: false };
}
