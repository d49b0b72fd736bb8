// @ts-check
/** Replay runs without Python: bind memory, submit the recording, read results. */

import { matches, rowsOf } from './matching.js';
import { activity, play } from './player.js';
import { filled } from './recording.js';
import { evaluate, packed, patched } from './sizes.js';
import { isLost } from './waiting.js';

/**
 * @typedef {import('../worker/tensors.js').Memory} Memory
 * @typedef {import('../worker/tensors.js').Remote} Remote
 * @typedef {import('../worker/tensors.js').Tensors} Tensors
 * @typedef {import('./recording.js').Command} Command
 * @typedef {import('./recording.js').Open} Open
 *
 * @typedef {object} Seen a tensor
 * @property {string} name
 * @property {string} type
 * @property {number[]} dims as seen when it was planned
 * @property {number[]} scaled for each dimension the number of its expression, or -1; or empty
 * @property {number} bits of an element
 * @property {number} [most] bytes that it can have, of a plan file that may be wrong
 *
 * @typedef {Seen & {buffer: GPUBuffer, offset: number}} Place memory of the plan's own
 * @typedef {Seen & {slot: number}} Slot memory that each run brings
 * @typedef {object} Rows a number of rows: `offset`, or that of an expression; plus the elements of an input where it has one
 * @property {string} input
 * @property {number} offset
 * @property {number} expression its number, or -1
 *
 * @typedef {Seen & {input: string, axis: number, capacity: number, first?: Rows | null, end?: Rows | null}} Kept an output in the
 *   memory of an input; `axis`: the axis along which rows are appended, -1: none; `capacity`: index of the dynamic dimension that
 *   counts the rows of the memory, -1: none; `first`: first row that is overwritten, and `end`: end of the valid rows afterwards
 *
 * @typedef {object} Replay as `WebGpuDevice.replay_object` describes it
 * @property {GPUDevice} device
 * @property {(Command | Open)[]} commands
 * @property {Place[]} uploads
 * @property {Place[]} downloads
 * @property {Omit<Seen, 'bits'>[]} unread inputs on the host of which only type and shape count
 * @property {import('./bounds.js').Bound[]} bounds integers that inputs on the host have to be
 * @property {Slot[]} inputs tensors on the GPU
 * @property {Slot[]} outputs that stay there
 * @property {Kept[]} kept
 * @property {(import('./sizes.js').Elements & {buffer: GPUBuffer, offset: number})[]} numbers tensors that follow from sizes
 * @property {import('./sizes.js').Sizes | null} sizes its dynamic dimensions
 * @property {{name: string, bytes: Uint8Array}[]} [values] of inputs on the host that it is for, and no other
 * @property {string[]} [scalars] inputs of shape [] that runs may bring in shape [1] instead, all of them
 * @property {{grid: number[], scaled: number[], most: number}[]} [grids] of a plan out of a file: those that depend on sizes, and how
 *   many workgroups each may have
 * @property {boolean} live false once its memory is freed
 * @property {number} [seconds] that a run may take: the session's limit `run_seconds`
 * @property {Map<string, Command[]>} [bound] commands by the memory they were bound to
 *
 * @typedef {object} Fed what a run is fed: a tensor on the host with its data, or one on the GPU
 * @property {string} type
 * @property {number[]} dims
 * @property {ArrayBuffer | import('../net/pieces.js').Incoming | string[]} [data]
 * @property {Remote} [remote]
 */

/** Sets of memory whose bind groups a replay keeps. */
const BOUND = 8;

/**
 * Dimensions and bytes of a tensor in a run for which the expressions have these values.
 * @param {Seen} seen
 * @param {number[]} numbers
 */
function sized({ name, dims, scaled, bits, most = Infinity }, numbers) {
  const made = scaled.length ? dims.map((dim, axis) => (scaled[axis] < 0 ? dim : numbers[scaled[axis]])) : dims;
  const nbytes = Math.ceil((made.reduce((product, dim) => product * dim, 1) * bits) / 8);
  if (!(nbytes >= 0 && nbytes <= most)) throw new Error(`the plan is damaged: '${name}' would be [${made}]`);
  return { dims: made, nbytes };
}

/**
 * The memory of each input and output on the GPU; null where some is missing.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {number[]} numbers
 * @param {Tensors | null} tensors
 * @param {Memory[]} spares
 * @returns {Map<number, Memory> | null} by slot
 */
function memoryOf({ inputs, outputs }, feeds, numbers, tensors, spares) {
  /** @type {Map<number, Memory>} */
  const found = new Map();
  for (const { name, slot } of inputs) found.set(slot, /** @type {Remote} */ (feeds[name].remote).memory);
  const taken = [];
  for (const output of outputs) {
    const memory = /** @type {Tensors} */ (tensors).memoryFor(sized(output, numbers).nbytes, spares);
    if (!memory) {
      spares.push(...taken);
      return null;
    }
    taken.push(memory);
    found.set(output.slot, memory);
  }
  return found;
}

/**
 * The commands with bind groups for this memory; those for the sets that were used last are kept.
 * @param {Replay} replay
 * @param {Map<number, Memory>} memory by slot
 * @returns {Command[]}
 */
function boundTo(replay, memory) {
  if (!memory.size) return /** @type {Command[]} */ (replay.commands);
  replay.bound ??= new Map();
  const key = [...memory.values()].map(({ id }) => id).join();
  const made = replay.bound.get(key)
    ?? filled(replay.device, replay.commands, (slot) => /** @type {Memory} */ (memory.get(slot)).buffer);
  replay.bound.delete(key);
  replay.bound.set(key, made);
  if (replay.bound.size > BOUND) replay.bound.delete(/** @type {string} */ (replay.bound.keys().next().value));
  return made;
}

/**
 * @typedef {object} Prepared a run that is not queued yet
 * @property {Replay} replay
 * @property {Command[]} commands
 * @property {import('./staging.js').Write[]} writes
 * @property {number[]} numbers what the grids count
 * @property {{name: string, tensor: Remote}[]} staying tensors that it leaves on the GPU
 */

/**
 * What a run of `feeds` does; null where there is no memory for what stays on the GPU. Tensors that stay are claimed at once,
 * so that the next run sees them.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {number[]} values of its dynamic dimensions
 * @param {Tensors | null} tensors null where nothing stays on the GPU
 * @param {Memory[]} spares
 * @returns {Prepared | null}
 */
export function prepare(replay, feeds, values, tensors, spares) {
  const { sizes } = replay;
  const numbers = sizes ? sizes.expressions.map((expression) => evaluate(expression, values)) : [];
  for (const { grid, scaled, most } of replay.grids ?? []) {
    const made = grid.map((n, axis) => (scaled[axis] < 0 ? n : numbers[scaled[axis]]));
    if (!(made[0] * made[1] * made[2] <= most)) throw new Error(`the plan is damaged: ${made} workgroups`);
  }
  const memory = memoryOf(replay, feeds, numbers, tensors, spares);
  if (!memory) return null;
  const staying = [
    ...replay.outputs.map((seen) => ({ seen, at: /** @type {Memory} */ (memory.get(seen.slot)) })),
    ...replay.kept.map((seen) => ({ seen, at: /** @type {Remote} */ (feeds[seen.input].remote).memory })),
  ].map(({ seen, at }) => ({ name: seen.name, tensor: hold(tensors, seen, numbers, at) }));
  replay.kept.forEach(({ end }, i) => {
    const rows = end && rowsOf(end, replay, feeds, values);
    if (rows) staying[replay.outputs.length + i].tensor.counted = Math.max(...rows);
  });
  return { replay, commands: boundTo(replay, memory), writes: writesOf(replay, feeds, numbers), numbers, staying };
}

/**
 * Prepare a run by the first replay that fits; null where none does.
 * @param {Replay[]} replays
 * @param {Record<string, Fed>} feeds
 * @param {{fetches: string[] | null, stay: string[]}} requested its outputs, and those that stay on the GPU
 * @param {{outputs: number, spares: Memory[]}} session
 * @param {Tensors} tensors
 */
export function prepareFirst(replays, feeds, { fetches, stay }, { outputs, spares }, tensors) {
  for (const replay of replays) {
    const sizes = matches(replay, feeds, fetches, outputs, stay);
    const prepared = sizes && prepare(replay, feeds, sizes, tensors, spares);
    if (prepared) return prepared;
  }
  return null;
}

/**
 * Run `feeds`; null as `prepare` is.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {number[]} values
 * @param {Tensors | null} tensors
 * @param {Memory[]} spares
 * @param {import('./long_runs.js').Watch} [watch]
 * @returns {Promise<Record<string, any>> | null}
 */
export function run(replay, feeds, values, tensors, spares, watch) {
  const prepared = prepare(replay, feeds, values, tensors, spares);
  return prepared && finish(prepared, tensors, watch);
}

/**
 * Run what is prepared: everything up to the submit at once, where it need not wait.
 * @param {Prepared} prepared
 * @param {Tensors | null} tensors
 * @param {import('./long_runs.js').Watch} [watch]
 * @returns {Promise<Record<string, any>>}
 */
export async function finish(prepared, tensors, watch = {}) {
  const { replay, commands, writes, numbers, staying } = prepared;
  const reads = readsOf(prepared);
  activity.replays += 1;
  isLost(replay.device);
  try {
    const read = await play(replay.device, commands, writes, reads, numbers, watch);
    if (staying.length && isLost(replay.device)) throw new Error('the device was lost, and the tensors on it');
    return results(prepared, reads, read, tensors);
  } catch (error) {
    for (const { tensor } of staying) tensors?.dispose(tensor.number);
    throw error;
  }
}

/** What a run reads back. @param {Prepared} prepared */
export function readsOf({ replay, numbers }) {
  return replay.downloads.map((place) => ({ ...place, ...sized(place, numbers) }));
}

/**
 * The tensor of an output that stays on the GPU.
 * @param {Tensors | null} tensors
 * @param {Seen} seen
 * @param {number[]} numbers
 * @param {Memory} memory
 */
function hold(tensors, seen, numbers, memory) {
  const { dims, nbytes } = sized(seen, numbers);
  if (nbytes > memory.buffer.size) throw new Error(`the plan is damaged: '${seen.name}' would be [${dims}]`);
  return /** @type {Tensors} */ (tensors).made(seen.type, dims, memory);
}

/**
 * What a run answers. Tensors without elements do not stay: they are results on the host.
 * @param {Prepared} prepared
 * @param {{name: string, type: string, dims: number[]}[]} reads
 * @param {ArrayBuffer[]} read the bytes of each
 * @param {Tensors | null} tensors
 */
export function results({ staying }, reads, read, tensors) {
  return Object.fromEntries([
    ...reads.map(({ name, type, dims }, i) => [name, { type, dims, data: read[i] }]),
    ...staying.map(({ name, tensor }) => {
      if (!tensor.dims.includes(0)) return [name, /** @type {Tensors} */ (tensors).wire(tensor)];
      tensors?.dispose(tensor.number);
      return [name, { type: tensor.type, dims: tensor.dims, data: new ArrayBuffer(0) }];
    }),
  ]);
}

/**
 * What is uploaded for a run, parameters first.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {number[]} numbers
 */
function writesOf({ uploads, numbers: made, sizes }, feeds, numbers) {
  const writes = uploads.map((place) => ({ ...place, ...sized(place, numbers) })).filter(({ nbytes }) => nbytes)
    .map(({ name, buffer, offset, nbytes }) => (
      { buffer, offset, nbytes, data: /** @type {ArrayBuffer} */ (feeds[name].data), dataOffset: 0 }));
  for (const { buffer, offset, ...elements } of made) {
    const data = packed(elements, numbers);
    writes.push({ buffer, offset, nbytes: data.byteLength, data, dataOffset: 0 });
  }
  if (sizes?.buffer) {
    const data = patched(sizes, numbers);
    writes.unshift({ buffer: sizes.buffer, offset: 0, nbytes: data.byteLength, data, dataOffset: 0 });
  }
  return writes;
}
