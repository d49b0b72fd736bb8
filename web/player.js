// @ts-check
/**
 * Replays a recorded command list: uploads, compute passes, one readback, in one call from Python.
 */

import { resultMemory, touchPages } from './memory.js';
import { LARGE } from './pieces.js';
import { caught, collect, guarded, inTurn, isLarge, stage, upload, uploadNow } from './staging.js';
import { attend } from './waiting.js';

export { upload };

/**
 * @typedef {object} Command
 * @property {GPUComputePipeline} pipeline
 * @property {GPUBindGroup} group
 * @property {[number, number, number]} grid
 *
 * @typedef {import('./staging.js').Write} Write
 * @typedef {import('./staging.js').Read} Read
 * @typedef {import('./staging.js').Piece} Piece
 */

/** Dispatches in one submit; the GPU starts on the first while the rest are encoded. */
const CHUNK = 96;

/** Pieces copied to staging buffers in one submit: all of them are there when it is done. */
const COPIES = 4;

/**
 * @param {GPUCommandEncoder} encoder
 * @param {Command[]} commands
 */
function encode(encoder, commands) {
  const pass = encoder.beginComputePass();
  let current;
  for (const { pipeline, group, grid } of commands) {
    if (pipeline !== current) pass.setPipeline(pipeline);
    current = pipeline;
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(grid[0], grid[1], grid[2]);
  }
  pass.end();
}

/**
 * @param {GPUCommandEncoder} encoder
 * @param {Piece[]} pieces
 */
function copy(encoder, pieces) {
  for (const { buffer, offset, length, staging } of pieces) {
    encoder.copyBufferToBuffer(buffer, offset, staging, 0, (length + 3) & ~3);
  }
}

/**
 * Wait for the pieces. The time is used to touch the memory that results will be copied to.
 * @param {GPUDevice} device
 * @param {object} recording
 * @param {Promise<unknown>} arrivals
 * @param {Piece[]} pieces
 * @param {Uint8Array[]} results
 * @param {Piece[]} untouched those whose memory is new
 */
async function settle(device, recording, arrivals, pieces, results, untouched) {
  const cold = untouched.filter(({ length }) => length >= LARGE / 2);
  const work = () => {
    const next = cold.shift();
    if (next && !next.done) touchPages(results[next.result], next.at, next.at + next.length);
    return next !== undefined;
  };
  await attend(device, arrivals, { recording, work, progress: () => pieces.filter(({ done }) => done).length });
}

/**
 * Queue uploads, the recording, and the copies to staging buffers.
 * @param {GPUDevice} device
 * @param {Command[]} commands
 * @param {Write[]} writes
 * @param {Read[]} reads
 */
function queue(device, commands, writes, reads) {
  /** @type {Piece[]} */
  let pieces = [];
  const scopes = guarded(device, () => {
    pieces = stage(device, reads);
    try {
      encodeAndSubmit();
    } catch (error) {
      for (const { staging } of pieces) staging.destroy();
      throw error;
    }
  });
  return { pieces, scopes };

  function encodeAndSubmit() {
    for (const write of writes) uploadNow(device, write);
    for (let first = 0; first < Math.max(commands.length, 1); first += CHUNK) {
      const encoder = device.createCommandEncoder();
      if (commands.length) encode(encoder, commands.slice(first, first + CHUNK));
      if (first + CHUNK >= commands.length) copy(encoder, pieces.slice(0, COPIES));
      device.queue.submit([encoder.finish()]);
    }
    for (let first = COPIES; first < pieces.length; first += COPIES) {
      const encoder = device.createCommandEncoder();
      copy(encoder, pieces.slice(first, first + COPIES));
      device.queue.submit([encoder.finish()]);
    }
  }
}

/**
 * Run a recording. Everything up to the submit is synchronous, or in turn where a large tensor is uploaded, so that
 * overlapping runs of one session are queued whole, one after another.
 * @param {GPUDevice} device
 * @param {Command[]} commands
 * @param {Write[]} writes
 * @param {Read[]} reads
 * @returns {Promise<ArrayBuffer[]>} the bytes of each read
 */
export async function play(device, commands, writes, reads) {
  /** @type {Promise<GPUError | null>[]} */
  const uploaded = [];
  const large = writes.filter(isLarge);
  const small = writes.filter((write) => !isLarge(write));
  const { pieces, scopes } = large.length
    ? await inTurn(device, large, uploaded, () => queue(device, commands, small, reads))
    : queue(device, commands, small, reads);
  scopes.push(...uploaded);
  const memory = reads.map(({ nbytes }) => resultMemory(nbytes));
  const results = memory.map(({ bytes }) => bytes);
  const untouched = pieces.filter(({ result }) => !memory[result].warm);
  const arrivals = Promise.all(pieces.map((piece) => collect(device, piece, results)));
  try {
    if (pieces.length) await settle(device, commands, arrivals, pieces, results, untouched);
    await caught(scopes);
    return results.map(({ buffer }) => buffer);
  } catch (error) {
    arrivals.catch(() => {});
    for (const { staging, done } of pieces) if (!done) staging.destroy();
    await caught(scopes.map((scope) => scope.catch(() => null)));
    throw error;
  }
}

/**
 * @typedef {object} Place
 * @property {string} name
 * @property {string} type
 * @property {number[]} dims
 * @property {GPUBuffer} buffer
 * @property {number} offset
 * @property {number} nbytes
 *
 * @typedef {object} Replay A run in which Python has no part, as `WebGpuDevice.replay_object` describes it.
 * @property {GPUDevice} device
 * @property {Command[]} commands
 * @property {Place[]} uploads
 * @property {Place[]} downloads
 * @property {boolean} live false once its memory is freed
 */

/** @param {Place} place @param {{type: string, dims: number[]} | undefined} tensor */
function fits({ type, dims }, tensor) {
  return tensor !== undefined && tensor.type === type && tensor.dims.length === dims.length
    && dims.every((dim, axis) => dim === tensor.dims[axis]);
}

/**
 * True where `replay` runs exactly these feeds and gives exactly these outputs.
 * @param {Replay} replay
 * @param {Record<string, {type: string, dims: number[]}>} feeds
 * @param {string[] | null} fetches null: all
 * @param {number} outputs how many the model has
 */
export function matches({ live, uploads, downloads }, feeds, fetches, outputs) {
  const names = fetches ?? downloads.map(({ name }) => name);
  return live && uploads.length === Object.keys(feeds).length && uploads.every((place) => fits(place, feeds[place.name]))
    && downloads.length === (fetches ? fetches.length : outputs)
    && names.every((name) => downloads.some((place) => place.name === name));
}

/**
 * Run a replay on `feeds`.
 * @param {Replay} replay
 * @param {Record<string, {data: ArrayBuffer | import('./pieces.js').Incoming | string[]}>} feeds
 */
export async function run({ device, commands, uploads, downloads }, feeds) {
  const writes = uploads.filter(({ nbytes }) => nbytes).map(({ name, buffer, offset, nbytes }) => (
    { buffer, offset, nbytes, data: /** @type {ArrayBuffer} */ (feeds[name].data), dataOffset: 0 }));
  const results = await play(device, commands, writes, downloads);
  return Object.fromEntries(downloads.map(({ name, type, dims }, i) => [name, { type, dims, data: results[i] }]));
}
