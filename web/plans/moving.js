// @ts-check
/**
 * Move GPU tensors of sessions over plans to Python. A GPUBuffer cannot leave its thread, so a tensor is read and uploaded again where
 * Python is, once; it is Python's from then on.
 */

import { placesOf } from './locations.js';

/**
 * @typedef {import('../api/protocol.js').WireTensor} WireTensor
 * @typedef {import('./locations.js').Place} Place
 */

/**
 * Move a tensor to Python; its data where Python has no GPU.
 * @param {Place} place
 * @param {any} owner
 * @returns {Promise<WireTensor | null>}
 */
async function move(place, owner) {
  const { memory, number } = place;
  const tensor = await memory.download(number);
  const made = await owner.call('upload', { tensor }).catch(() => null);
  if (!made) return tensor;
  memory.dispose(number);
  Object.assign(place, { memory: owner, port: owner, number: made.gpu });
  return null;
}

/**
 * Return the request with tensors that are in Python.
 * @param {any} request
 * @param {any} owner
 */
export async function moved(request, owner) {
  /** @type {Map<Place, WireTensor | null>} */
  const data = new Map();
  const here = new Set(placesOf(request).filter(({ port }) => port.movable));
  await Promise.all([...here].map(async (place) => {
    place.moving ??= move(place, owner).finally(() => { place.moving = undefined; });
    data.set(place, /** @type {any} */ (await place.moving));
  }));
  const change = (/** @type {any} */ value) => {
    if (value?.kind === 'sequence') return { ...value, values: value.values.map(change) };
    if (!value?.place) return value;
    const { place, ...rest } = value;
    return data.get(place) ?? { ...rest, gpu: place.number };
  };
  const { feeds = {}, kept = {}, caches = [], ...rest } = request;
  const all = (/** @type {any} */ values) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value)]));
  return { ...rest, feeds: all(feeds), kept: all(kept), caches: caches.map((/** @type {any} */ cache) => ({ ...cache, given: change(cache.given) })) };
}
