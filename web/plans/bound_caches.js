// @ts-check
/**
 * Runs of compiled models whose inputs or outputs stay on the GPU: inputs are brought into the memory that a plan expects, as
 * `pyruntime/session/run/bound_inputs.py` does in Python.
 */

import { tensorsOf } from './tensors.js';
import { matches, rowsOf, run } from '../gpu/replay.js';
import { evaluate } from '../gpu/sizes.js';
import { caught, guarded } from '../gpu/staging.js';

/**
 * @typedef {import('../gpu/replay.js').Fed} Fed
 * @typedef {import('../gpu/replay.js').Replay} Replay
 * @typedef {import('../worker/tensors.js').Memory} Memory
 * @typedef {import('../worker/tensors.js').Remote} Remote
 * @typedef {import('./tensors.js').OwnedTensors} OwnedTensors
 */

/** Rows there is room for at least. */
const LEAST = 256;

/** Rows there is room for in new memory for so many: doubling, so that copies are few. @param {number} rows */
const capacity = (rows) => Math.max(LEAST, 2 ** Math.ceil(Math.log2(rows)));

/** Memory that does not fit is left: what does is made. @type {import('../gpu/replay.js').Fitting} */
const brought = {
  fits: () => true,
  mayWrite: () => true,
  addRooms({ kept, sizes }, feeds, values) {
    for (const { input, axis, scaled, room } of kept.filter((one) => one.room >= 0)) {
      const { expressions, ranges } = /** @type {import('../gpu/sizes.js').Sizes} */ (sizes);
      const needed = evaluate(expressions[scaled[axis]], values);
      const there = feeds[input].remote?.memory.room?.rows ?? 0;
      values[room] = Math.max(values[room] ?? 0, needed <= there && there <= ranges[room][1] ? there : capacity(needed));
    }
    return true;
  },
};

/**
 * The feeds in memory that `replay` can have, each in memory of its own.
 * @param {Replay} replay
 * @param {Record<string, Fed>} feeds
 * @param {number[]} values of the open sizes
 * @param {OwnedTensors} tensors
 * @returns {{housed: Record<string, Fed>, copies: Remote[]}} `copies`: the caller's to dispose of
 */
function house(replay, feeds, values, tensors) {
  /** @type {Remote[]} */
  const copies = [];
  const taken = new Set();
  const housed = { ...feeds };
  for (const { name } of replay.inputs) {
    const remote = /** @type {Remote} */ (feeds[name].remote);
    const written = replay.kept.find(({ input, room, first }) => input === name && (room >= 0 || first));
    const rows = written?.first ? rowsOf(written.first, replay, feeds, values) : null;
    let found = remote;
    if (written && written.room >= 0) found = tensors.grown(remote, written.axis, values[written.room]);
    else if (written) found = tensors.rewritten(remote, Math.min(...rows ?? [0]));
    else if (remote.memory.room) found = tensors.copy(remote);
    if (taken.has(found.memory)) found = tensors.copy(remote, ...(written && written.room >= 0 ? [written.axis, values[written.room]] : []));
    if (found !== remote) copies.push(found);
    taken.add(found.memory);
    housed[name] = { ...feeds[name], remote: found };
  }
  return { housed, copies };
}

/** The runs of one session. */
export class Housing {
  #device;

  /** @param {GPUDevice} device */
  constructor(device) {
    this.#device = device;
    this.tensors = tensorsOf(device);
    /** Memory for the outputs of the next runs. @type {Memory[]} */
    this.spares = [];
  }

  /**
   * `matches` of replay.js, where inputs may be brought into other memory.
   * @param {Replay} replay
   * @param {Record<string, Fed>} feeds
   * @param {string[] | null} fetches
   * @param {number} outputs
   * @param {string[]} stay
   */
  matches(replay, feeds, fetches, outputs, stay) {
    return matches(replay, feeds, fetches, outputs, stay, brought);
  }

  /**
   * Run a replay, when it is there. Inputs on the GPU are the run's until it is done, whatever the page does with them.
   * @param {Promise<Replay>} made
   * @param {Record<string, Fed>} feeds
   * @param {(replay: Replay, feeds: Record<string, Fed>) => number[] | null} sizesOf what `matches` says of these
   * @returns {Promise<Record<string, any>>}
   */
  async run(made, feeds, sizesOf) {
    const { tensors } = this;
    const lent = Object.fromEntries(Object.entries(feeds).map(([name, fed]) => (
      [name, fed.remote ? { ...fed, remote: tensors.again(fed.remote) } : fed])));
    const held = Object.values(lent).flatMap(({ remote }) => remote ?? []);
    try {
      const replay = await made;
      if (tensors.lost) throw new Error('the device is lost');
      /** @type {{running: Promise<Record<string, any>> | null}} */
      const queued = { running: null };
      const scopes = guarded(this.#device, () => {
        const sizes = sizesOf(replay, lent);
        if (!sizes) throw new Error('it has been released');
        const { housed, copies } = house(replay, lent, sizes, tensors);
        held.push(...copies);
        queued.running = run(replay, housed, sizes, tensors, this.spares);
      });
      const outputs = /** @type {Record<string, any>} */ (await queued.running);
      await caught(scopes).catch((error) => {
        this.drop(outputs);
        throw error;
      });
      for (const value of Object.values(outputs)) {
        if (value.kind === 'gpu') Object.assign(value, { home: tensors, buffer: undefined });
      }
      return outputs;
    } finally {
      for (const { number } of held) tensors.dispose(number);
    }
  }

  /** Give back outputs that nobody gets. @param {Record<string, any>} outputs */
  drop(outputs) {
    for (const value of Object.values(outputs)) if (value.kind === 'gpu') this.tensors.dispose(value.gpu);
  }

  release() {
    this.tensors.release(this.spares);
  }
}
