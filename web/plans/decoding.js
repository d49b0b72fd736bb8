// @ts-check
/** Decode text with plans, without Python: the tokens are chosen on the GPU (web/worker/decoding.js). */

import { Decodings } from '../worker/decoding.js';
import { hold, sessions } from './locations.js';

/**
 * @typedef {import('./bound_caches.js').BoundCaches} BoundCaches
 * @typedef {import('../gpu/replay.js').Fed} Fed
 * @typedef {import('./standalone.js').StandaloneClient} StandaloneClient
 *
 * @typedef {object} Here a session
 * @property {BoundCaches} boundCaches
 * @property {NonNullable<ReturnType<import('../worker/decoding.js').Host['known']>>} known
 * @property {(feeds: Record<string, Fed>, outputs: string[]) => Promise<Record<string, any>>} run run a plan with outputs on the GPU;
 *   rejects with NoPlan where none fits
 */

/** No plan fits a decoding step: the text continues in Python. */
export class NoPlan extends Error {
  name = 'NoPlan';
}

/** The decoding loops here: their numbers are below 0, as those of Python's loops are above. */
const decodings = new Decodings(-1);

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
  if (method === 'decodeEnd') return decodings.end(args);
  return decodings.steps(args, { id: 0, signal: listening.signal ?? new AbortController().signal }).catch((error) => {
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
  const release = hold(args);
  try {
    const why = 'no plan decodes this text';
    const { owner, handle } = await client.start(why);
    const sampler = sessions.get(args.sampler);
    const chooser = sampler ? (await sampler.start(why)).handle : args.sampler;
    return await owner.call('decode', { ...args, decoder: handle, sampler: chooser });
  } finally {
    release();
  }
}

/**
 * Begin a decoding loop here; returns its number, below 0.
 * @param {import('../api/protocol.js').DecodeArguments} args
 * @param {BoundCaches} boundCaches of the decoder
 */
function begin(args, { tensors }) {
  const { device } = tensors;
  return decodings.begin({
    device, tensors, known: (session) => sessionOf(session)?.known,
    run: (session, feeds, outputs) => /** @type {Here} */ (sessionOf(session)).run(feeds, outputs),
  }, args);
}
