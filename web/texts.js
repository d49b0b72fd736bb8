// @ts-check
/** Texts of decoders over compiled models, whose tokens are chosen on the GPU without Python (web/decoding.js). */

import { Decoding } from './decoding.js';

/**
 * @typedef {import('./housing.js').Housing} Housing
 * @typedef {import('./protocol.js').RunArguments} RunArguments
 *
 * @typedef {object} Here a session
 * @property {Housing} housing
 * @property {NonNullable<ReturnType<import('./decoding.js').Host['known']>>} known
 * @property {(args: RunArguments) => Promise<Record<string, any>>} run what it has a plan for; rejects with NoPlan else
 */

/** A run of a text that no plan is for: it has to go on in Python. */
export class NoPlan extends Error {
  name = 'NoPlan';
}

/** @type {Map<number, Decoding>} */
const loops = new Map();
let last = 0;

/**
 * Begin a text; its number, below 0.
 * @param {import('./protocol.js').DecodeArguments} args
 * @param {GPUDevice} device
 * @param {(session: number) => Here | undefined} sessionOf
 */
export function begin(args, device, sessionOf) {
  const { tensors } = /** @type {Here} */ (sessionOf(args.decoder)).housing;
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

/** @param {import('./protocol.js').DecodeStepsArguments} args @param {AbortSignal} [signal] */
export async function steps(args, signal = new AbortController().signal) {
  const loop = loops.get(args.decoding);
  if (!loop) throw new Error('decoding has ended');
  return loop.steps(args, { id: 0, signal });
}

/** End a text: its caches, by the names of inputs. @param {import('./protocol.js').DecodeEndArguments} args */
export async function end({ decoding, kept }) {
  const loop = loops.get(decoding);
  loops.delete(decoding);
  return loop ? loop.end(kept) : {};
}
