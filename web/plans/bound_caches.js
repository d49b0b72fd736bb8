// @ts-check
/**
 * Run plans whose inputs or outputs stay on the GPU: bind each input to memory that the plan can use, as
 * `pyruntime/session/run/input_memory.py` does in Python.
 */

import { tensorsOf } from './tensors.js';
import { rowsOf } from '../gpu/matching.js';
import { run } from '../gpu/replay.js';
import { evaluate } from '../gpu/sizes.js';
import { caught, guarded } from '../gpu/staging.js';

/**
 * @typedef {import('../gpu/replay.js').Fed} Fed
 * @typedef {import('../gpu/replay.js').Replay} Replay
 * @typedef {import('../worker/tensors.js').Memory} Memory
 * @typedef {import('../worker/tensors.js').Remote} Remote
 * @typedef {import('./tensors.js').OwnedTensors} OwnedTensors
 */

/** Minimum of reserved rows. */
const LEAST = 256;

/** Rows to reserve in new memory for `rows`: powers of two, so that copies are few. @param {number} rows */
const reservedFor = (rows) => Math.max(LEAST, 2 ** Math.ceil(Math.log2(rows)));

/** Inputs may be in any memory: `bindInputs` copies those that the plan cannot use. @type {import('../gpu/matching.js').Fitting} */
const anyMemory = {
  fits: () => true,
  mayWrite: () => true,
  addCapacity({ kept, sizes }, feeds, values) {
    for (const { input, axis, scaled, capacity } of kept.filter((one) => one.capacity >= 0)) {
      const { expressions, ranges } = /** @type {import('../gpu/sizes.js').Sizes} */ (sizes);
      const needed = evaluate(expressions[scaled[axis]], values);
      const there = feeds[input].remote?.memory.reserved?.rows ?? 0;
      values[capacity] = Math.max(values[capacity] ?? 0, needed <= there && there <= ranges[capacity][1] ? there : reservedFor(needed));
    }
    return true;
  },
};

/**
 * Bind each input to memory that `replay` can use and no other input has.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {number[]} values of the dynamic dimensions
 * @param {OwnedTensors} tensors
 * @returns {{bound: Record<string, Fed>, copies: Remote[]}} `copies`: to be disposed of after the run
 */
function bindInputs(replay, feeds, values, tensors) {
  /** @type {Remote[]} */
  const copies = [];
  const taken = new Set();
  const bound = { ...feeds };
  for (const { name } of replay.inputs) {
    const remote = /** @type {Remote} */ (feeds[name].remote);
    const written = replay.kept.find(({ input, capacity, first }) => input === name && (capacity >= 0 || first));
    const rows = written?.first ? rowsOf(written.first, replay, feeds, values) : null;
    let found = remote;
    if (written && written.capacity >= 0) found = tensors.grown(remote, written.axis, values[written.capacity]);
    else if (written) found = tensors.rewritten(remote, Math.min(...rows ?? [0]));
    else if (remote.memory.reserved) found = tensors.copy(remote);
    if (taken.has(found.memory)) found = tensors.copy(remote, ...(written && written.capacity >= 0 ? [written.axis, values[written.capacity]] : []));
    if (found !== remote) copies.push(found);
    taken.add(found.memory);
    bound[name] = { ...feeds[name], remote: found };
  }
  return { bound, copies };
}

/** Runs of one session with tensors on the GPU. */
export class BoundCaches {
  fitting = anyMemory;
  /** Memory for the outputs of the next runs. @type {Memory[]} */
  spares = [];

  /** @param {GPUDevice} device */
  constructor(device) {
    this.tensors = tensorsOf(device);
  }

  /**
   * Run a replay, once it is created. Inputs on the GPU are kept until the run ends; the page may dispose of them.
   * @param {Promise<Replay>} made
   * @param {Record<string, Fed>} feeds
   * @param {(replay: Replay, feeds: Record<string, Fed>) => number[] | null} sizesOf gives the dynamic dimensions, or null where the plan does not fit
   * @param {import('../gpu/long_runs.js').Watch} [watch]
   * @returns {Promise<Record<string, any>>}
   */
  async run(made, feeds, sizesOf, watch) {
    const { tensors } = this;
    const lent = Object.fromEntries(Object.entries(feeds).map(([name, fed]) => (
      [name, fed.remote ? { ...fed, remote: tensors.again(fed.remote) } : fed])));
    const held = Object.values(lent).flatMap(({ remote }) => remote ?? []);
    try {
      const replay = await made;
      if (tensors.lost) throw new Error('the device is lost');
      /** @type {{running: Promise<Record<string, any>> | null}} */
      const queued = { running: null };
      const scopes = guarded(tensors.device, () => {
        const sizes = sizesOf(replay, lent);
        if (!sizes) throw new Error('the session was released');
        const { bound, copies } = bindInputs(replay, lent, sizes, tensors);
        held.push(...copies);
        queued.running = run(replay, bound, sizes, tensors, this.spares, watch);
      });
      const outputs = /** @type {Record<string, any>} */ (await queued.running);
      await caught(scopes).catch((error) => {
        for (const value of Object.values(outputs)) if (value.kind === 'gpu') tensors.dispose(value.gpu);
        throw error;
      });
      return outputs;
    } finally {
      for (const { number } of held) tensors.dispose(number);
    }
  }

  release() {
    this.tensors.release(this.spares);
  }
}
