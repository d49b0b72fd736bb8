// @ts-check
/**
 * Keeps the site's files, each under the hash that `integrity.json` gives it, so that a later visit needs no network. Only the
 * page registers it, and only while the visitor wants files to be kept. What the build did not list is not touched.
 */

const CACHE = 'pyruntime-site';
const MANIFEST = 'integrity.json';

/** What browsers ask for by themselves where a page names no icon, and give up when it is left. */
const ICON = 'favicon.ico';
const worker = /** @type {any} */ (globalThis);

/** Hashes by path, as Subresource Integrity writes them. @typedef {Record<string, string>} Files */

/** @type {Promise<Files> | undefined} */
let files;

/** What they were when last read: a request for another path is the browser's own. @type {Files | undefined} */
let listed;

/** The visitor cleared what was kept; the page goes on without. */
let isCleared = false;

/**
 * What is kept; null where nothing is to be. It is made when the page registers this worker, or tells it to keep files: this
 * worker may end at any time, and the next one would not know that the visitor has cleared it while the page goes on.
 */
async function existing() {
  return !isCleared && await caches.has(CACHE) && !isCleared ? caches.open(CACHE) : null;
}

/** What may still write to the cache. @type {Set<Promise<unknown>>} */
const writing = new Set();

/** @template T @param {Promise<T>} work @returns {Promise<T>} */
function tracked(work) {
  const done = work.then(() => {}, () => {}).finally(() => writing.delete(done));
  writing.add(done);
  return work;
}

const manifestURL = () => new URL(MANIFEST, worker.registration.scope).href;

/** The build's list: from the network, or as it was at the last visit. @returns {Promise<Files>} */
async function readManifest() {
  const cache = await existing();
  const url = manifestURL();
  try {
    const response = await fetch(url, { cache: 'no-cache' });
    if (!response.ok) throw new Error(`HTTP status ${response.status}`);
    const found = await response.clone().json();
    if (cache) {
      await cache.put(url, response).catch(() => {});
      await forgetOthers(cache, found, url);
    }
    listed = found;
    return found;
  } catch {
    return (await cache?.match(url))?.json() ?? {};
  }
}

/** @param {Cache} cache @param {Files} found @param {string} manifest */
async function forgetOthers(cache, found, manifest) {
  const wanted = new Set(Object.keys(found).map((path) => keyOf(path, found[path])));
  for (const { url } of await cache.keys()) {
    if (url !== manifest && !wanted.has(url)) await cache.delete(url);
  }
}

/** @param {string} path @param {string} hash */
function keyOf(path, hash) {
  return new URL(`${path}?${hash}`, worker.registration.scope).href;
}

/** The path that the build's list has for a URL; null for others. @param {string} url */
function pathOf(url) {
  const { scope } = worker.registration;
  const plain = url.split(/[?#]/)[0];
  if (!plain.startsWith(scope)) return null;
  const path = decodeURI(plain.slice(scope.length));
  return path === '' || path.endsWith('/') ? `${path}index.html` : path;
}

/**
 * Store a response if its bytes have the listed hash; without storage, nothing is stored.
 * @param {string} path @param {string} hash @param {Response} response
 */
async function keep(path, hash, response) {
  const bytes = await response.arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-384', bytes));
  if (`sha384-${btoa(String.fromCharCode(...digest))}` !== hash) return;
  const headers = new Headers(response.headers);
  headers.set('Content-Length', String(bytes.byteLength));
  headers.delete('Content-Encoding');
  const cache = isCleared ? null : await existing();
  await cache?.put(keyOf(path, hash), new Response(bytes, { headers })).catch(() => {}); // storage is full: the network serves it
}

/** @param {Request} request @param {(work: Promise<unknown>) => void} later @returns {Promise<Response>} */
async function answer(request, later) {
  if (request.mode === 'navigate') files = tracked(readManifest());
  files ??= tracked(readManifest());
  const path = pathOf(request.url);
  const hash = path === null ? undefined : (await files)[path];
  if (!hash) return fetch(request);
  const key = keyOf(/** @type {string} */ (path), hash);
  const known = await caches.match(key, { cacheName: CACHE });
  if (known) return request.method === 'HEAD' ? new Response(null, { headers: known.headers }) : known;
  const response = await fetch(request);
  if (!isCleared && request.method === 'GET' && response.status === 200) {
    later(tracked(keep(/** @type {string} */ (path), hash, response.clone())));
  }
  return response;
}

/** Fetch and keep these files, those that the list has. @param {string[]} urls */
async function keepAll(urls) {
  const cache = await caches.open(CACHE);
  if (!await cache.match(manifestURL())) files = readManifest();
  files ??= readManifest();
  const known = await files;
  for (const url of urls) {
    if (isCleared) break;
    const path = pathOf(url);
    const hash = path === null ? undefined : known[path];
    if (!hash || await cache.match(keyOf(/** @type {string} */ (path), hash))) continue;
    const response = await fetch(url).catch(() => null);
    if (response?.status === 200) await keep(/** @type {string} */ (path), hash, response);
  }
  for (const client of await worker.clients.matchAll({ includeUncontrolled: true })) client.postMessage({ kept: urls.length });
}

worker.addEventListener('install', (/** @type {any} */ event) => {
  event.waitUntil(caches.open(CACHE));
  worker.skipWaiting();
});
worker.addEventListener('activate', (/** @type {any} */ event) => event.waitUntil(worker.clients.claim()));
worker.addEventListener('message', (/** @type {any} */ event) => {
  isCleared = Boolean(event.data?.cleared);
  if (isCleared) event.waitUntil(Promise.all(writing).then(() => event.ports[0]?.postMessage({ cleared: true })));
  if (Array.isArray(event.data?.keep)) event.waitUntil(tracked(keepAll(event.data.keep)));
});
worker.addEventListener('fetch', (/** @type {any} */ event) => {
  const { request } = event;
  if (!['GET', 'HEAD'].includes(request.method) || pathOf(request.url) === null || request.headers.has('Range')) return;
  const path = /** @type {string} */ (pathOf(request.url));
  if (path === MANIFEST || path === ICON || (listed && request.mode !== 'navigate' && !listed[path])) return;
  event.respondWith(answer(request, (work) => event.waitUntil(work)));
});
