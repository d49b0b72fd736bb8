// @ts-check
/** Locations of GPU tensors that can move: those of sessions over plans go to Python (moving.js). */

/**
 * @typedef {object} Place of a tensor on the GPU; it may become another one
 * @property {import('../api/marshalling.js').Memory} memory
 * @property {any} port who had it when it was made
 * @property {number} number by which that knows it
 * @property {boolean} gone whether it is disposed
 * @property {number} users runs that take it elsewhere: it is there until they are done
 * @property {Promise<unknown>} [moving]
 */

/** Sessions over compiled models, by their handles: below 0, as those of Python's sessions are above. @type {Map<number, import('./standalone.js').StandaloneClient>} */
export const sessions = new Map();

/** Tensors of a run that may have to be moved. @param {import('../api/protocol.js').RunArguments} args @returns {Place[]} */
export function placesOf({ feeds, kept }) {
  const found = (/** @type {any} */ value) => (value?.kind === 'sequence' ? value.values.flatMap(found) : value?.place ?? []);
  return [feeds, kept].flatMap((values) => Object.values(values).flatMap(found));
}

/** Have tensors until `letGo`, what this gives, is called; the page may dispose of them. @param {Place[]} places */
export function hold(places) {
  for (const place of places) place.users += 1;
  return () => {
    for (const place of places) {
      place.users -= 1;
      if (place.gone && !place.users) place.memory.dispose(place.number);
    }
  };
}
