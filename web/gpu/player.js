// @ts-check
/** Play a recorded command list: uploads, compute passes, one readback. */

import { encode, preEncode, passOf, submitsOf, takePreEncoded } from './encoding.js';
import { afterLong, isLong, submitInSlices } from './long_runs.js';
import { LARGE } from '../net/pieces.js';
import { copyAll, Readback, resultMemory } from './readback.js';
import { ordered } from './repeated.js';
import { caught, guarded, inTurn, isLarge, longRuns, uploadNow, uploadWith, waits } from './staging.js';
import { attend } from './waiting.js';

/**
 * @typedef {import('./recording.js').Command} Command
 * @typedef {import('./staging.js').Write} Write
 * @typedef {import('./readback.js').Read} Read
 * @typedef {import('./readback.js').Planned} Piece
 * @typedef {import('./readback.js').Copy} Copy
 *
 * @typedef {object} Run
 * @property {Command[]} commands as they were recorded
 * @property {Command[]} dispatches the commands in the order in which they run, a repeated one as often as it runs
 * @property {Write[]} writes
 * @property {Read[]} reads
 * @property {number[]} numbers what the grids count
 */

/** Counts runs that were queued without Python in this thread, for measurements of the GPU. */
export const activity = { replays: 0 };

/**
 * Bytes of a result from which on its pages are written to while the GPU computes: the system finds and clears each page of new
 * memory at the first write, which takes several times as long as copying the result into it.
 */
const COLD = 64 << 10;
const PAGE = 4096;

/** Bytes of a small result that are touched between two questions, some 0.1 ms; of larger ones it is a piece. */
const TOUCHED = 128 << 10;

/** What is touched of a piece in one go each: a question costs as much as touching a small part. @param {Piece} piece */
function partsOf(piece) {
  const [end, step] = [piece.at + piece.length, piece.length < LARGE / 2 ? TOUCHED : piece.length];
  const parts = [];
  for (let from = piece.at; from < end; from += step) parts.push({ piece, from, to: Math.min(from + step, end) });
  return parts;
}

/**
 * Wait for the pieces. The time is used to encode the next run, and to touch the memory that results will be copied to.
 * @param {GPUDevice} device
 * @param {Run} run
 * @param {Promise<unknown>} arrivals
 * @param {Piece[]} pieces
 * @param {Uint8Array[]} results
 * @param {Piece[]} cold those whose pages are not in place
 */
async function waitFor(device, run, arrivals, pieces, results, cold) {
  const parts = cold.flatMap(partsOf);
  let encoded = false;
  const work = () => {
    if (!encoded) {
      encoded = true;
      preEncode(device, run);
      return true;
    }
    const next = parts.shift();
    if (next && !next.piece.done) for (let at = next.from; at < next.to; at += PAGE) results[next.piece.result][at] = 0;
    return next !== undefined;
  };
  await attend(device, arrivals, { work, progress: () => pieces.filter(({ done }) => done).length });
}

/**
 * Queue uploads, the recording, and the copies to staging buffers.
 * @param {GPUDevice} device
 * @param {Run} run
 */
function queue(device, { commands, dispatches, writes, reads, numbers }) {
  /** @type {Readback | undefined} */
  let readback;
  const scopes = guarded(device, () => {
    readback = new Readback(device, reads);
    try {
      encodeAndSubmit(readback);
    } catch (error) {
      readback.end();
      throw error;
    }
  });
  return { readback: /** @type {Readback} */ (readback), scopes };

  /** @param {Readback} results */
  function encodeAndSubmit(results) {
    const { queued, uploaded } = uploadWith(device, writes);
    try {
      const encoded = takePreEncoded(commands, numbers);
      submitsOf(dispatches).forEach((part, i, parts) => {
        queued.push(encoded?.[i] ?? passOf(device, part, numbers));
        if (i < parts.length - 1) device.queue.submit(queued.splice(0));
      });
      results.submit(queued);
    } finally {
      uploaded();
    }
  }
}

/**
 * Queue recordings sequentially, with copies before each and after all, in one submit. Uploads come before everything:
 * no recording may upload to memory that one before it uses, and none of them may wait (`waits`).
 * @param {GPUDevice} device
 * @param {{commands: Command[], writes: Write[], numbers: number[], before?: Copy[]}[]} recordings
 * @param {Copy[]} copies
 * @returns {Promise<GPUError | null>[]} what error scopes catch
 */
export function enqueue(device, recordings, copies) {
  activity.replays += recordings.length;
  return guarded(device, () => {
    for (const { writes } of recordings) for (const write of writes) uploadNow(device, write);
    const encoder = device.createCommandEncoder();
    for (const { commands, numbers, before = [] } of recordings) {
      copyAll(encoder, before);
      if (commands.length) encode(encoder, ordered(commands, numbers), numbers);
    }
    copyAll(encoder, copies);
    device.queue.submit([encoder.finish()]);
  });
}

/**
 * Run a recording. Everything up to the submit is synchronous, or in turn where a large tensor is uploaded or one before
 * it still is, so that overlapping runs of one session are queued whole, one after another. A run of much work is submitted in
 * slices, and those after it wait for its end.
 * @param {GPUDevice} device
 * @param {Command[]} commands
 * @param {Write[]} writes
 * @param {Read[]} reads
 * @param {number[]} numbers what the grids count
 * @param {import('./long_runs.js').Watch} [watch]
 * @returns {Promise<ArrayBuffer[]>} the bytes of each read
 */
export async function play(device, commands, writes, reads, numbers, watch = {}) {
  const run = { commands, dispatches: ordered(commands, numbers), writes, reads, numbers };
  if (!longRuns.has(device) && !isLong(device, run.dispatches)) return playWhole(device, run);
  return afterLong(device, () => (isLong(device, run.dispatches) ? playInSlices(device, run, watch) : playWhole(device, run)));
}

/**
 * @param {GPUDevice} device
 * @param {Run} run
 * @param {import('./long_runs.js').Watch} watch
 */
async function playInSlices(device, run, watch) {
  const transfers = { ...run, commands: [], dispatches: [] };
  await playWhole(device, { ...transfers, reads: [] });
  /** @type {Promise<GPUError | null>[]} */
  const scopes = [];
  await submitInSlices(device, run.dispatches, run.numbers, scopes, watch);
  const results = await playWhole(device, { ...transfers, writes: [] });
  await caught(scopes);
  return results;
}

/**
 * @param {GPUDevice} device
 * @param {Run} run
 */
async function playWhole(device, run) {
  const { writes, reads } = run;
  /** @type {Promise<GPUError | null>[]} */
  const uploaded = [];
  const small = { ...run, writes: writes.filter((write) => !isLarge(write)) };
  const { readback, scopes } = waits(device, writes)
    ? await inTurn(device, writes, uploaded, () => queue(device, small))
    : queue(device, small);
  scopes.push(...uploaded);
  const memory = reads.map(({ nbytes }) => resultMemory.take(nbytes));
  const results = memory.map(({ bytes }) => bytes);
  const { pieces } = readback;
  const cold = pieces.filter(({ result }) => results[result].length >= COLD && !memory[result].isReady);
  const arrivals = readback.collect(results, scopes);
  try {
    if (pieces.length) await waitFor(device, run, arrivals, pieces, results, cold);
    await caught(scopes);
    readback.end();
    resultMemory.taken(reads.map(({ nbytes }) => nbytes));
    return results.map(({ buffer }) => buffer);
  } catch (error) {
    arrivals.catch(() => {});
    readback.end();
    await caught(scopes.map((scope) => scope.catch(() => null)));
    throw error;
  }
}
