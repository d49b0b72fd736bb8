// @ts-check
/** Locations of GPU tensors that can move: those of sessions over plans go to Python (moving.js). */

/**
 * @typedef {object} Place of a tensor on the GPU; it may become another one
 * @property {import('../api/marshalling.js').Memory} memory
 * @property {any} port the host that made it
 * @property {number} number by which its host knows it
 * @property {boolean} gone whether it was disposed of
 * @property {number} users requests that may move it: it exists until they are answered
 * @property {Promise<unknown>} [moving]
 */

/** Sessions over plans, by their handles, which are below 0. @type {Map<number, import('./standalone.js').StandaloneClient>} */
export const sessions = new Map();

/** The tensors in a request that are on the GPU; `kept` of a decoding loop's end is a number or null. @param {any} request @returns {Place[]} */
export function placesOf({ feeds = {}, kept, caches = [] }) {
  const found = (/** @type {any} */ value) => (value?.kind === 'sequence' ? value.values.flatMap(found) : value?.place ?? []);
  return [...Object.values(feeds), ...Object.values(kept ?? {}), ...caches.map((/** @type {any} */ { given }) => given)].flatMap(found);
}

/** Whether a request has tensors that Python does not have. @param {any} request */
export function hasMovable(request) {
  return placesOf(request).some(({ port }) => port.movable);
}

/** Keep a request's tensors, of which the page may dispose, until the returned function is called. @param {any} request */
export function hold(request) {
  const places = placesOf(request);
  for (const place of places) place.users += 1;
  return () => {
    for (const place of places) {
      place.users -= 1;
      if (place.gone && !place.users) place.memory.dispose(place.number);
    }
  };
}
