// @ts-check
/**
 * Plans kept on this computer for the next visit, in Cache Storage: by model and options, version, and adapter. Which model a
 * plan is for is known by the hash in it, which is compared while the model's bytes go to the GPU; a key need not be exact.
 */

import { hex } from './treehash.js';

const CACHE = 'pyruntime-plans';
const ORDER = 'order';

/** A plan of more bytes is not kept. */
const LARGEST = 16 << 20;

/** Of more plans, and of more bytes together, those that were not used for longest go. */
const MOST = 64;
const MOST_BYTES = 64 << 20;

/** Bytes of either end of a model that has no address, by which its plans are found. */
const END = 1 << 16;

/** @typedef {import('../pyruntime.js').AdapterInfo} AdapterInfo */
/** @typedef {{version: string, adapter: AdapterInfo, tags?: Record<string, string>}} Made what a plan was made by and for, and the ETags of the model's files */
/** @typedef {Made & {read: () => Promise<ArrayBuffer | null>}} Kept */

/** 'change': another plan is kept, or none is any more. */
export const changes = new EventTarget();

/** How often this page has forgotten every plan. */
let cleared = 0;

/** Whether plans may still be kept for who began now: until every plan is forgotten. @returns {() => boolean} */
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

/** One after the other: what looks at the cache while it is deleted would make it again. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
function inTurn(work) {
  const done = turn.then(work);
  turn = done.catch(() => {});
  return done;
}

/** @returns {Promise<Cache | null>} null where there is no storage */
async function open() {
  return 'caches' in globalThis ? caches.open(CACHE).catch(() => null) : null;
}

/** Whether anything is kept: looking for it makes no cache. */
export async function isAnything() {
  return 'caches' in globalThis && await caches.has(CACHE).catch(() => false);
}

/** What is kept, if anything is. */
async function existing() {
  return await isAnything() ? open() : null;
}

/**
 * Where the plans of a model with these options are.
 * @param {string | Blob | ArrayBuffer} model
 * @param {unknown} options
 * @param {{path: string, data: string | Blob | ArrayBuffer}[]} [files] that the page has given beside it
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

/** For JSON of one order. @param {string} _ @param {unknown} value */
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
 * @returns {Promise<Kept[]>}
 */
export function find(place) {
  return inTurn(() => found(place));
}

/** @param {string} place */
async function found(place) {
  const cache = await existing();
  /** @type {Kept[]} */
  const plans = [];
  for (const request of await cache?.keys().catch(() => []) ?? []) {
    if (!request.url.startsWith(address(`${place}/`))) continue;
    const response = await cache?.match(request);
    const made = madeFor(response);
    if (!response || !made) continue;
    const read = () => {
      const bytes = inTurn(() => response.arrayBuffer().catch(() => null));
      bytes.then(() => inTurn(() => used(/** @type {Cache} */ (cache), request.url))).catch(() => {}); // nobody waits for that
      return bytes;
    };
    plans.push({ ...made, read });
  }
  return plans;
}

/**
 * Addresses of plans and their bytes in the order of their use, the last one last: in one entry, so that no other is looked at.
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
  await cache.put(address(ORDER), Response.json([...rest, ...own])).catch(() => {}); // no room: the order stays
}

/**
 * Keep a plan in the place of the one there was, and of those of other versions; false where it is too large, or there is no
 * room.
 * @param {string} place
 * @param {Made} made
 * @param {ArrayBuffer} plan
 * @param {() => boolean} [may] whether it may be kept, asked when it is about to be
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
    await makeRoom(cache);
    changes.dispatchEvent(new Event('change'));
    return true;
  } catch {
    return false;
  }
}

/** Forget the plan that does not do. @param {string} place @param {Made} made */
export async function forget(place, made) {
  await inTurn(async () => (await existing())?.delete(address(await pathOf(place, made))));
  changes.dispatchEvent(new Event('change'));
}

/** @param {Cache} cache */
async function makeRoom(cache) {
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

/** How many plans are kept, and their bytes. */
export function usage() {
  return inTurn(async () => {
    const cache = await existing();
    if (!cache) return { plans: 0, bytes: 0 };
    const plans = await order(cache);
    return { plans: plans.length, bytes: bytesOf(plans) };
  });
}

/** Forget every plan. */
export async function clear() {
  cleared += 1;
  await inTurn(async () => 'caches' in globalThis && caches.delete(CACHE));
  changes.dispatchEvent(new Event('change'));
}
