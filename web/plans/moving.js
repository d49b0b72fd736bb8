// @ts-check
/**
 * Move tensors of sessions over plans to Python. A GPUBuffer cannot leave its thread, so the tensor is read and uploaded again where
 * Python is, once; it is Python's from then on.
 */

import { placesOf } from './locations.js';

/**
 * @typedef {import('../api/protocol.js').RunArguments} RunArguments
 * @typedef {import('./locations.js').Place} Place
 */

/**
 * Give a tensor to Python; its data where Python has no GPU.
 * @param {Place} place
 * @param {any} owner
 * @returns {Promise<import('../api/protocol.js').WireTensor | null>}
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
 * A request with tensors that Python has; they are held until it is answered.
 * @param {RunArguments} args
 * @param {any} owner
 */
export async function moved(args, owner) {
  /** @type {Map<Place, import('../api/protocol.js').WireTensor | null>} */
  const data = new Map();
  const here = new Set(placesOf(args).filter(({ port }) => port.movable));
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
  const all = (/** @type {any} */ values) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value)]));
  return { ...args, feeds: all(args.feeds), kept: all(args.kept) };
}
