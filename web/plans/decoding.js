// @ts-check
/** Decode text with plans, without Python: the tokens are chosen on the GPU (web/worker/decoding.js). */

import { Decoding } from '../worker/decoding.js';
import { moved } from './moving.js';
import { hold, placesOf, sessions } from './locations.js';

/**
 * @typedef {import('./bound_caches.js').BoundCaches} BoundCaches
 * @typedef {import('../api/protocol.js').RunArguments} RunArguments
 * @typedef {import('./standalone.js').StandaloneClient} StandaloneClient
 *
 * @typedef {object} Here a session
 * @property {BoundCaches} boundCaches
 * @property {NonNullable<ReturnType<import('../worker/decoding.js').Host['known']>>} known
 * @property {(args: RunArguments) => Promise<Record<string, any>>} run what it has a plan for; rejects with NoPlan else
 */

/** No plan fits a decoding step: the text continues in Python. */
export class NoPlan extends Error {
  name = 'NoPlan';
}

/** @type {Map<number, Decoding>} */
const loops = new Map();
let last = 0;

/** @param {number} session */
const sessionOf = (session) => sessions.get(session)?.here ?? undefined;

/**
 * Answer a decoding request of a session: here where the caches and the sampler are here, else in Python.
 * @param {StandaloneClient} client
 * @param {string} method
 * @param {any} args
 * @param {Transferable[]} transfer
 * @param {import('../api/client.js').Listening} listening
 */
export async function ask(client, method, args, transfer, listening) {
  if (method === 'decode') {
    const { here } = client;
    const own = here && args.caches.every((/** @type {any} */ { given }) => !('kind' in given) || here.boundCaches.tensors.fed(given));
    return own && !client.lacks && sessionOf(args.sampler) ? begin({ ...args, decoder: client.handle }, here.boundCaches) : beginInPython(client, args);
  }
  if (!(args.decoding < 0)) return (await client.start('a text continues')).owner.call(method, args, transfer, listening);
  if (method === 'decodeEnd') return end(args, /** @type {Here} */ (client.here).boundCaches);
  return steps(args, listening.signal).catch((error) => {
    client.lacks ||= error.name === 'NoPlan';
    throw error;
  });
}

/**
 * Begin a decoding loop in Python, with caches that are here.
 * @param {StandaloneClient} client
 * @param {import('../api/protocol.js').DecodeArguments} args
 */
async function beginInPython(client, args) {
  const given = /** @type {RunArguments} */ (/** @type {unknown} */ (
    { feeds: Object.fromEntries(args.caches.map((cache) => [cache.input, cache.given])), kept: {} }));
  const letGo = hold(placesOf(given));
  try {
    const why = 'no plan decodes this text';
    const { owner, handle } = await client.start(why);
    const sampler = sessions.get(args.sampler);
    const chooser = sampler ? (await sampler.start(why)).handle : args.sampler;
    const { feeds } = await moved(given, owner);
    const caches = args.caches.map((cache) => ({ ...cache, given: feeds[cache.input] }));
    return await owner.call('decode', { ...args, decoder: handle, sampler: chooser, caches });
  } finally {
    letGo();
  }
}

/**
 * Begin a decoding loop here; returns its number, below 0.
 * @param {import('../api/protocol.js').DecodeArguments} args
 * @param {BoundCaches} boundCaches of the decoder
 */
function begin(args, { tensors }) {
  const { device } = tensors;
  const run = (/** @type {RunArguments} */ given) => {
    const feeds = Object.fromEntries(Object.entries(given.feeds).map(([name, value]) => [name, fedOf(value, tensors)]));
    return /** @type {Here} */ (sessionOf(given.session)).run({ ...given, feeds });
  };
  const made = new Decoding({ device, tensors, known: (session) => sessionOf(session)?.known, run }, args);
  last -= 1;
  loops.set(last, made);
  return last;
}

/** Memory that the loop allocated has separate numbers. */
let lastMemory = 0;

/** Convert a feed of the loop for a session here. @param {any} value @param {BoundCaches['tensors']} tensors */
function fedOf(value, tensors) {
  if (value.kind === 'gpu') return { ...value, place: { port: tensors } };
  if (value.kind !== 'buffer') return value;
  lastMemory += 1;
  const memory = { id: -(2 ** 40) - lastMemory, buffer: value.buffer, reserved: null, tensors: new Set(), holders: [], spares: null };
  const { type, dims } = value;
  return { ...value, remote: { number: 0, type, dims, memory, python: 0 } };
}

/** @param {import('../api/protocol.js').DecodeStepsArguments} args @param {AbortSignal} [signal] */
async function steps(args, signal = new AbortController().signal) {
  const loop = loops.get(args.decoding);
  if (!loop) throw new Error('decoding has ended');
  return loop.steps(args, { id: 0, signal });
}

/**
 * End a decoding loop; returns its caches, by the names of inputs.
 * @param {import('../api/protocol.js').DecodeEndArguments} args
 * @param {BoundCaches} boundCaches
 */
async function end({ decoding, kept }, { tensors }) {
  const loop = loops.get(decoding);
  loops.delete(decoding);
  const caches = await loop?.end(kept) ?? {};
  for (const cache of Object.values(caches)) Object.assign(cache, { home: tensors, buffer: undefined });
  return caches;
}
