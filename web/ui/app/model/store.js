// @ts-check
/**
 * Cache models on this computer, by a hash of their bytes, with their server's validators. If storage is full or missing, they are kept in
 * memory for this visit.
 */

import { BlobReader } from '../../../net/blobs.js';

const CACHE = 'pyruntime-models';
const SETTING = 'pyruntime-keep';
const LARGEST = 1 << 30;

/** A server's validators of a file. @typedef {{etag: string, modified: string, size: number}} Stamp */
/** @typedef {{sha256: string, stamp: Stamp}} Entry */

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

/** @param {string} kind @param {string} name */
function key(kind, name) {
  return new URL(`.kept/${kind}/${encodeURIComponent(name)}`, document.baseURI).href;
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
  const cache = await open();
  const entry = /** @type {Entry | undefined} */ (await (await cache?.match(key('url', url)))?.json());
  if (!cache || !entry || (stamp && !same(entry.stamp, stamp))) return null;
  return (await cache.match(key('sha256', entry.sha256)))?.blob() ?? null;
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
    const sha256 = await hashOf(blob);
    const headers = { 'Content-Length': String(blob.size) };
    await cache.put(key('sha256', sha256), new Response(blob, { headers }));
    await cache.put(key('url', url), Response.json({ sha256, stamp }));
    return 'disk';
  } catch {
    if (!isKeeping()) return 'nowhere';
    memory.set(url, { stamp, blob });
    return 'memory';
  }
}

/** Bytes that are hashed at a time, to bound memory. */
const BLOCK = 8 << 20;

/** Return the SHA-256 of a file of one block; of several, the SHA-256 of their concatenated hashes. @param {Blob} blob */
async function hashOf(blob) {
  const reader = new BlobReader(blob);
  const copy = new Uint8Array(Math.min(BLOCK, blob.size));
  const hashes = [];
  for (let at = 0; at === 0 || at < blob.size; at += BLOCK) {
    const block = copy.subarray(0, blob.size - at);
    await reader.copyInto(at, block);
    hashes.push(await crypto.subtle.digest('SHA-256', block));
  }
  const digest = hashes.length === 1 ? hashes[0] : await crypto.subtle.digest('SHA-256', await new Blob(hashes).arrayBuffer());
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Return the bytes cached on this computer, and in memory for this visit. */
export async function usage() {
  const cache = 'caches' in globalThis && await caches.has(CACHE) ? await open() : null;
  let disk = 0;
  for (const request of await cache?.keys() ?? []) {
    if (request.url.includes('/.kept/sha256/')) disk += Number((await cache?.match(request))?.headers.get('Content-Length') ?? 0);
  }
  return { disk, memory: [...memory.values()].reduce((sum, { blob }) => sum + blob.size, 0) };
}

/** Delete all cached models. */
export async function clear() {
  memory.clear();
  if ('caches' in globalThis) await caches.delete(CACHE);
}
