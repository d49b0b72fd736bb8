// @ts-check
/**
 * Cache plans in Cache Storage for the next visit, by model and options, version, and adapter. The plan has the hash of its model,
 * which is compared while the model's bytes go to the GPU, so a key need not be exact.
 */

import { hex } from './treehash.js';

const CACHE = 'pyruntime-plans';
const ORDER = 'order';

/** Limit of one plan's bytes. */
const LARGEST = 16 << 20;

/** Limits of plans and of their bytes together; above them, the least recently used are deleted. */
const MOST = 64;
const MOST_BYTES = 64 << 20;

/** Bytes of either end of a model that has no address, by which its plans are found. */
const END = 1 << 16;

/** @typedef {import('../pyruntime.js').AdapterInfo} AdapterInfo */
/** @typedef {{version: string, adapter: AdapterInfo, tags?: Record<string, string>}} Made the version and adapter of a plan, and the ETags of the model's files */
/** @typedef {Made & {read: () => Promise<ArrayBuffer | null>}} CachedFile */

/** Dispatches 'change' when a plan was cached or deleted. */
export const changes = new EventTarget();

/** How often this page has deleted every plan. */
let cleared = 0;

/** A test whether plans may still be cached: false once every plan was deleted. @returns {() => boolean} */
export function permission() {
  const before = cleared;
  return () => cleared === before;
}

/** @param {string} path */
const address = (path) => new URL(`/.pyruntime-plans/${path}`, globalThis.location.href).href;

/** @param {string} text */
export const hashOf = async (text) => hex(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)))).slice(0, 32);

/** @type {Promise<unknown>} */
let turn = Promise.resolve();

/** Run sequentially: an access to the cache while it is deleted would create it again. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
function inTurn(work) {
  const done = turn.then(work);
  turn = done.catch(() => {});
  return done;
}

/** @returns {Promise<Cache | null>} null where there is no storage */
async function open() {
  return 'caches' in globalThis ? caches.open(CACHE).catch(() => null) : null;
}

/** Whether any plan is cached; creates no cache. */
export async function isAnything() {
  return 'caches' in globalThis && await caches.has(CACHE).catch(() => false);
}

/** The cache, where it exists. */
async function existing() {
  return await isAnything() ? open() : null;
}

/**
 * The key of the plans of a model with these options.
 * @param {string | Blob | ArrayBuffer} model
 * @param {unknown} options
 * @param {{path: string, data: string | Blob | ArrayBuffer}[]} [files] external data that the page has given
 */
export async function placeOf(model, options, files = []) {
  let name = String(model).split('#')[0];
  if (typeof model !== 'string') {
    const blob = model instanceof Blob ? model : new Blob([model]);
    const ends = await new Blob([blob.slice(0, END), blob.slice(Math.max(END, blob.size - END))]).arrayBuffer();
    name = `${blob.size} ${hex(new Uint8Array(await crypto.subtle.digest('SHA-256', ends)))}`;
  }
  const given = files.map(({ path, data }) => [path, typeof data === 'string' ? data.split('#')[0] : data instanceof Blob ? data.size : data.byteLength]);
  return hashOf(JSON.stringify([name, options, ...(given.length ? [given] : [])], sorted));
}

/** Sort the keys of objects, so that equal values have equal JSON. @param {string} _ @param {unknown} value */
function sorted(_, value) {
  const isPlain = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isPlain ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value;
}

/** @param {string} place @param {Made} made */
async function pathOf(place, { version, adapter }) {
  const { vendor, architecture, device, description } = adapter;
  return `${place}/${await hashOf(JSON.stringify([version, vendor, architecture, device, description]))}`;
}

/** @param {Response | undefined} response @returns {Made | null} */
function madeFor(response) {
  try {
    return JSON.parse(decodeURIComponent(response?.headers.get('X-Made') ?? ''));
  } catch {
    return null;
  }
}

/**
 * The plans of a model, whatever they were made for.
 * @param {string} place
 * @returns {Promise<CachedFile[]>}
 */
export function find(place) {
  return inTurn(() => found(place));
}

/** @param {string} place */
async function found(place) {
  const cache = await existing();
  /** @type {CachedFile[]} */
  const plans = [];
  for (const request of await cache?.keys().catch(() => []) ?? []) {
    if (!request.url.startsWith(address(`${place}/`))) continue;
    const response = await cache?.match(request);
    const made = madeFor(response);
    if (!response || !made) continue;
    const read = () => {
      const bytes = inTurn(() => response.arrayBuffer().catch(() => null));
      bytes.then(() => inTurn(() => used(/** @type {Cache} */ (cache), request.url))).catch(() => {}); // not awaited
      return bytes;
    };
    plans.push({ ...made, read });
  }
  return plans;
}

/**
 * Addresses of plans and their bytes, the most recently used last; stored in one entry, so that plans need not be read.
 * @param {Cache} cache
 * @returns {Promise<[string, number][]>}
 */
async function order(cache) {
  /** @type {[string, number][]} */
  const known = await (await cache.match(address(ORDER)))?.json().catch(() => []) ?? [];
  const there = (await cache.keys()).map(({ url }) => url).filter((url) => url !== address(ORDER));
  const listed = new Map(known.filter((one) => Array.isArray(one) && there.includes(one[0])));
  const others = there.filter((url) => !listed.has(url)).map(async (url) => (
    /** @type {[string, number]} */ ([url, Number((await cache.match(url))?.headers.get('Content-Length') ?? 0)])));
  return [...await Promise.all(others), ...listed];
}

/** @param {Cache} cache @param {string} url @param {number} [nbytes] of a plan that is new */
async function used(cache, url, nbytes) {
  const all = await order(cache);
  const own = all.filter(([other]) => other === url).map(([, before]) => [url, nbytes ?? before]);
  const rest = all.filter(([other]) => other !== url);
  await cache.put(address(ORDER), Response.json([...rest, ...own])).catch(() => {}); // storage is full: the order stays
}

/**
 * Cache a plan in place of an earlier one and of those of other versions; false where it is too large, or storage is full.
 * @param {string} place
 * @param {Made} made
 * @param {ArrayBuffer} plan
 * @param {() => boolean} [may] whether it may be cached, called before and after writing
 */
export function put(place, made, plan, may = permission()) {
  return inTurn(() => putNow(place, made, plan, may));
}

/** @param {string} place @param {Made} made @param {ArrayBuffer} plan @param {() => boolean} may */
async function putNow(place, made, plan, may) {
  const url = address(await pathOf(place, made));
  const cache = plan.byteLength <= LARGEST && may() ? await open() : null;
  if (!cache) return false;
  try {
    const headers = { 'Content-Length': String(plan.byteLength), 'X-Made': encodeURIComponent(JSON.stringify(made)) };
    await cache.put(url, new Response(plan, { headers }));
    if (!may()) {
      await cache.delete(url);
      if (!(await cache.keys()).length) await caches.delete(CACHE);
      return false;
    }
    await used(cache, url, plan.byteLength);
    for (const request of await cache.keys()) {
      const other = request.url.startsWith(address(`${place}/`)) ? madeFor(await cache.match(request)) : null;
      if (other && other.version !== made.version) await cache.delete(request);
    }
    await evict(cache);
    changes.dispatchEvent(new Event('change'));
    return true;
  } catch {
    return false;
  }
}

/** Delete a plan that cannot be used. @param {string} place @param {Made} made */
export async function forget(place, made) {
  await inTurn(async () => (await existing())?.delete(address(await pathOf(place, made))));
  changes.dispatchEvent(new Event('change'));
}

/** @param {Cache} cache */
async function evict(cache) {
  const plans = await order(cache);
  let total = bytesOf(plans);
  for (let i = 0; i < plans.length && (plans.length - i > MOST || total > MOST_BYTES); i += 1) {
    const [url, nbytes] = plans[i];
    await cache.delete(url);
    total -= nbytes;
  }
}

/** @param {[string, number][]} plans */
const bytesOf = (plans) => plans.reduce((sum, [, nbytes]) => sum + nbytes, 0);

/** How many plans are cached, and their bytes. */
export function usage() {
  return inTurn(async () => {
    const cache = await existing();
    if (!cache) return { plans: 0, bytes: 0 };
    const plans = await order(cache);
    return { plans: plans.length, bytes: bytesOf(plans) };
  });
}

/** Delete every plan. */
export async function clear() {
  cleared += 1;
  await inTurn(async () => 'caches' in globalThis && caches.delete(CACHE));
  changes.dispatchEvent(new Event('change'));
}
