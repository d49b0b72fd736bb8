// @ts-check
/**
 * Tensors of sessions over compiled models, for sessions in Python. A GPUBuffer cannot leave its thread, so such a tensor is
 * read and uploaded again where Python is: once, and it is Python's from then on.
 */

/**
 * @typedef {import('./protocol.js').RunArguments} RunArguments
 * @typedef {import('./tensor.js').Place} Place
 */

/** @param {any} value of the wire @returns {Place[]} */
function placesIn(value) {
  if (value?.kind === 'sequence') return value.values.flatMap(placesIn);
  return value?.place ? [value.place] : [];
}

/** @param {RunArguments} args @returns {Place[]} */
function placesOf({ feeds, kept }) {
  return [feeds, kept].flatMap((values) => Object.values(values).flatMap(placesIn));
}

/**
 * Give a tensor to Python; its data where Python has no GPU.
 * @param {Place} place
 * @param {any} owner
 * @returns {Promise<import('./protocol.js').WireTensor | null>}
 */
async function move(place, owner) {
  const { memory, number } = place;
  const tensor = await memory.download(number);
  const made = await owner.call('upload', { tensor }).catch(() => null);
  if (!made) return tensor;
  if (!place.gone) memory.dispose(number);
  Object.assign(place, { memory: owner, port: owner, number: made.gpu });
  return null;
}

/**
 * A request with tensors that Python has. `sent` is to be called when it is under way: it gives back those of which the page
 * has disposed meanwhile.
 * @param {RunArguments} args
 * @param {any} owner
 */
export async function moved(args, owner) {
  /** @type {Map<Place, import('./protocol.js').WireTensor | null>} */
  const data = new Map();
  const mine = new Set(placesOf(args).filter(({ port }) => port.movable));
  await Promise.all([...mine].map(async (place) => {
    place.moving ??= move(place, owner).finally(() => { place.moving = undefined; });
    data.set(place, /** @type {any} */ (await place.moving));
  }));
  const change = (/** @type {any} */ value) => {
    if (value?.kind === 'sequence') return { ...value, values: value.values.map(change) };
    if (!value?.place) return value;
    const { place, ...rest } = value;
    const there = data.get(place);
    return there ?? { ...rest, gpu: place.number };
  };
  const all = (/** @type {any} */ values) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value)]));
  const sent = () => {
    for (const { gone, port, number } of mine) if (gone && !port.movable) port.dispose(number);
  };
  return { args: { ...args, feeds: all(args.feeds), kept: all(args.kept) }, sent };
}

/**
 * Ask Python for a run.
 * @param {any} owner
 * @param {RunArguments} args
 * @param {Transferable[]} transfer
 * @param {import('./client.js').Listening} listening
 */
export async function send(owner, args, transfer, listening) {
  const ready = await moved(args, owner);
  const answer = owner.call('run', ready.args, transfer, listening);
  ready.sent();
  return answer;
}
