// @ts-check
/** Texts of decoders over compiled models, whose tokens are chosen on the GPU without Python (web/worker/decoding.js). */

import { Decoding } from '../worker/decoding.js';
import { moved } from './moving.js';
import { hold, placesOf, sessions } from './locations.js';

/**
 * @typedef {import('./bound_caches.js').Housing} Housing
 * @typedef {import('../api/protocol.js').RunArguments} RunArguments
 * @typedef {import('./standalone.js').StandaloneClient} StandaloneClient
 *
 * @typedef {object} Here a session
 * @property {Housing} housing
 * @property {NonNullable<ReturnType<import('../worker/decoding.js').Host['known']>>} known
 * @property {(args: RunArguments) => Promise<Record<string, any>>} run what it has a plan for; rejects with NoPlan else
 */

/** A run of a text that no plan is for: it has to go on in Python. */
export class NoPlan extends Error {
  name = 'NoPlan';
}

/** @type {Map<number, Decoding>} */
const loops = new Map();
let last = 0;

/** @param {number} session */
const sessionOf = (session) => sessions.get(session)?.here ?? undefined;

/**
 * What is asked of the texts of a session. They are decoded here where the caches and the sampler are here, else in Python.
 * @param {StandaloneClient} client
 * @param {string} method
 * @param {any} args
 * @param {Transferable[]} transfer
 * @param {import('../api/client.js').Listening} listening
 */
export async function ask(client, method, args, transfer, listening) {
  if (method === 'decode') {
    const { here } = client;
    const own = here && args.caches.every((/** @type {any} */ { given }) => !('kind' in given) || here.housing.tensors.fed(given));
    return own && !client.lacks && sessionOf(args.sampler) ? begin({ ...args, decoder: client.handle }, here.housing) : beginInPython(client, args);
  }
  if (!(args.decoding < 0)) return (await client.start('a text goes on')).owner.call(method, args, transfer, listening);
  if (method === 'decodeEnd') return end(args, /** @type {Here} */ (client.here).housing);
  return steps(args, listening.signal).catch((error) => {
    client.lacks ||= error.name === 'NoPlan';
    throw error;
  });
}

/**
 * Begin a text in Python, with caches that are here.
 * @param {StandaloneClient} client
 * @param {import('../api/protocol.js').DecodeArguments} args
 */
async function beginInPython(client, args) {
  const given = /** @type {RunArguments} */ (/** @type {unknown} */ (
    { feeds: Object.fromEntries(args.caches.map((cache) => [cache.input, cache.given])), kept: {} }));
  const letGo = hold(placesOf(given));
  try {
    const why = 'a text has no plan';
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
 * Begin a text here; its number, below 0.
 * @param {import('../api/protocol.js').DecodeArguments} args
 * @param {Housing} housing of the decoder
 */
function begin(args, { tensors }) {
  const { device } = tensors;
  const run = (/** @type {RunArguments} */ given) => {
    const feeds = Object.fromEntries(Object.entries(given.feeds).map(([name, value]) => [name, housed(value, tensors)]));
    return /** @type {Here} */ (sessionOf(given.session)).run({ ...given, feeds });
  };
  const made = new Decoding({ device, tensors, known: (session) => sessionOf(session)?.known, run }, args);
  last -= 1;
  loops.set(last, made);
  return last;
}

/** Memory of the loop's own has numbers of its own. */
let lastMemory = 0;

/** A feed of the loop as sessions here take it. @param {any} value @param {Housing['tensors']} tensors */
function housed(value, tensors) {
  if (value.kind === 'gpu') return { ...value, place: { port: tensors } };
  if (value.kind !== 'buffer') return value;
  lastMemory += 1;
  const memory = { id: -(2 ** 40) - lastMemory, buffer: value.buffer, room: null, tensors: new Set(), holders: [], spares: null };
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
 * End a text: its caches, by the names of inputs.
 * @param {import('../api/protocol.js').DecodeEndArguments} args
 * @param {Housing} housing
 */
async function end({ decoding, kept }, { tensors }) {
  const loop = loops.get(decoding);
  loops.delete(decoding);
  const caches = await loop?.end(kept) ?? {};
  for (const cache of Object.values(caches)) Object.assign(cache, { home: tensors, buffer: undefined });
  return caches;
}
