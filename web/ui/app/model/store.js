// @ts-check
/**
 * Cache models on this computer, each under its address, with its server's validators. If storage is full or missing, they are kept in
 * memory for this visit.
 */

const CACHE = 'pyruntime-models';
const SETTING = 'pyruntime-keep';
const LARGEST = 1 << 30;

/** A server's validators of a file. @typedef {{etag: string, modified: string, size: number}} Stamp */

/** @type {Map<string, {stamp: Stamp, blob: Blob}>} */
const memory = new Map();

/** Return whether the visitor wants files to be cached. */
export function isKeeping() {
  try {
    return localStorage.getItem(SETTING) !== 'off';
  } catch {
    return false;
  }
}

/** @param {boolean} on */
export function setKeeping(on) {
  try {
    localStorage.setItem(SETTING, on ? 'on' : 'off');
  } catch {
    // without storage nothing is cached anyway
  }
}

/** @returns {Promise<Cache | null>} null without storage, or if the visitor wants none */
async function open() {
  if (!isKeeping() || !('caches' in globalThis)) return null;
  return caches.open(CACHE).catch(() => null);
}

/** @param {string} url */
function key(url) {
  return new URL(`.kept/url/${encodeURIComponent(url)}`, document.baseURI).href;
}

/** @param {Response} response @returns {Stamp} */
export function stampOf({ headers }) {
  return { etag: headers.get('ETag') ?? '', modified: headers.get('Last-Modified') ?? '', size: Number(headers.get('Content-Length') ?? 0) };
}

/** @param {Stamp} a @param {Stamp} b */
function same(a, b) {
  return a.size === b.size && (a.etag || b.etag ? a.etag === b.etag : a.modified === b.modified && a.modified !== '');
}

/**
 * Return the cached bytes of a URL.
 * @param {string} url
 * @param {Stamp | null} stamp the server's current validators; null if it does not respond
 * @returns {Promise<Blob | null>}
 */
export async function find(url, stamp) {
  const held = memory.get(url);
  if (held && (!stamp || same(held.stamp, stamp))) return held.blob;
  const response = await (await open())?.match(key(url));
  const kept = /** @type {Stamp | null} */ (JSON.parse(response?.headers.get('X-Stamp') ?? 'null'));
  return response && kept && (!stamp || same(kept, stamp)) ? response.blob() : null;
}

/**
 * Cache a download.
 * @param {string} url
 * @param {Stamp} stamp
 * @param {Blob} blob
 * @returns {Promise<'disk' | 'memory' | 'nowhere'>} where it is stored now
 */
export async function add(url, stamp, blob) {
  const cache = await open();
  try {
    if (!cache || blob.size > LARGEST) throw new DOMException('no storage', 'QuotaExceededError');
    const headers = { 'Content-Length': String(blob.size), 'X-Stamp': JSON.stringify(stamp) };
    await cache.put(key(url), new Response(blob, { headers }));
    return 'disk';
  } catch {
    if (!isKeeping()) return 'nowhere';
    memory.set(url, { stamp, blob });
    return 'memory';
  }
}

/** Return the bytes cached on this computer, and in memory for this visit. */
export async function usage() {
  const cache = 'caches' in globalThis && await caches.has(CACHE) ? await open() : null;
  let disk = 0;
  for (const request of await cache?.keys() ?? []) {
    disk += Number((await cache?.match(request))?.headers.get('Content-Length') ?? 0);
  }
  return { disk, memory: [...memory.values()].reduce((sum, { blob }) => sum + blob.size, 0) };
}

/** Delete all cached models. */
export async function clear() {
  memory.clear();
  if ('caches' in globalThis) await caches.delete(CACHE);
}
