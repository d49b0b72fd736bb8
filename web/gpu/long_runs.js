// @ts-check
/**
 * Runs of much work are submitted in slices: some systems reset a GPU that takes seconds for one submit (Windows: 2 s), and what is
 * submitted cannot be aborted. Two slices are submitted at a time, so that the GPU does not wait. Other runs on the device begin when
 * such a run has ended, since they may have the same memory.
 */

import { passOf } from './encoding.js';
import { guarded, longRuns } from './staging.js';
import { attend } from './waiting.js';

/** @typedef {import('./recording.js').Command} Command */
/**
 * @typedef {object} Watch of a run
 * @property {boolean} [aborted] true: no further slice is submitted
 * @property {(done: number, total: number) => void} [report] gets operations done, of all
 */

/** Seconds of work from which on a run is submitted in slices, and those of a slice. */
const LONG_S = 0.5;
const SLICE_S = 0.1;

/** Operations a second that a GPU is taken to do at first, and a software adapter: they do about as many at least. */
const FIRST_RATE = 1e11;
const SOFTWARE_RATE = 1e9;

/** Limit of what the measured operations a second may grow by from slice to slice: a short slice says little. */
const GROWTH = 4;

/** Operations a second as the last slices or the last long run had them. @type {WeakMap<GPUDevice, number>} */
const rates = new WeakMap();

/** Operations a second that a device does, as far as that is known. @param {GPUDevice} device */
function rateOf(device) {
  const { vendor = 'google', isFallbackAdapter = false } = device.adapterInfo ?? {};
  return rates.get(device) ?? (isFallbackAdapter || vendor === 'google' ? SOFTWARE_RATE : FIRST_RATE);
}

/** @type {WeakMap<Command[], number>} */
const totals = new WeakMap();

/**
 * What a run reports, and whether it was aborted: by the signal, or where `stopped` is set.
 * @param {{signal?: AbortSignal, report?: (event: any) => void}} request
 */
export function watchOf({ signal, report }) {
  return {
    stopped: false,
    get aborted() { return this.stopped || Boolean(signal?.aborted); },
    report: (/** @type {number} */ loaded, /** @type {number} */ total) => report?.({ phase: 'run', status: 'progress', loaded, total }),
  };
}

/** @param {Command[]} commands */
function workOf(commands) {
  let total = totals.get(commands);
  if (total === undefined) {
    total = commands.reduce((sum, { work }) => sum + work, 0);
    totals.set(commands, total);
  }
  return total;
}

/** Whether a run of these commands is submitted in slices. @param {GPUDevice} device @param {Command[]} commands */
export function isLong(device, commands) {
  return commands.length > 1 && workOf(commands) > LONG_S * rateOf(device);
}

/**
 * `run` after the runs of the device that are in progress in slices, or wait for such.
 * @template T
 * @param {GPUDevice} device
 * @param {() => Promise<T>} run
 * @returns {Promise<T>}
 */
export function afterLong(device, run) {
  const made = (longRuns.get(device) ?? Promise.resolve()).then(run);
  const ended = made.catch(() => {}).then(() => {
    if (longRuns.get(device) === ended) longRuns.delete(device);
  });
  longRuns.set(device, ended);
  return made;
}

/** Destroy buffers when no run in slices needs them any more. @param {GPUDevice} device @param {GPUBuffer[]} buffers */
export function destroy(device, buffers) {
  const now = () => { for (const buffer of buffers) buffer.destroy(); };
  const before = longRuns.get(device);
  if (before) before.then(now);
  else now();
}

/**
 * Submit commands in slices; resolved when all have ended.
 * @param {GPUDevice} device
 * @param {Command[]} commands
 * @param {number[]} numbers what the grids count
 * @param {Promise<GPUError | null>[]} scopes gets what error scopes catch
 * @param {Watch} watch
 */
export async function submitInSlices(device, commands, numbers, scopes, watch) {
  const total = workOf(commands);
  const ends = [{ at: performance.now(), done: 0 }];
  /** @type {{work: number, ended: Promise<undefined>}[]} */
  const queued = [];
  for (let first = 0; first < commands.length;) {
    if (watch.aborted) throw new DOMException('the run was aborted', 'AbortError');
    const most = SLICE_S * rateOf(device);
    let [end, work] = [first + 1, commands[first].work];
    while (end < commands.length && work + commands[end].work <= most) work += commands[end++].work;
    const slice = commands.slice(first, end);
    scopes.push(...guarded(device, () => device.queue.submit([passOf(device, slice, numbers)])));
    queued.push({ work, ended: device.queue.onSubmittedWorkDone() });
    first = end;
    if (queued.length > 1) await endOf(/** @type {typeof queued[0]} */ (queued.shift()));
  }
  for (const slice of queued) await endOf(slice);
  rates.set(device, 1000 * total / Math.max(ends[ends.length - 1].at - ends[0].at, 0.1));

  /** @param {typeof queued[0]} slice */
  async function endOf({ work, ended }) {
    await attend(device, ended);
    const before = ends[Math.max(0, ends.length - 2)]; // the end of one slice may be seen with that of the next
    const now = { at: performance.now(), done: ends[ends.length - 1].done + work };
    ends.push(now);
    const rate = 1000 * (now.done - before.done) / Math.max(now.at - before.at, 0.1);
    rates.set(device, Math.min(rate, GROWTH * rateOf(device)));
    if (!watch.aborted) watch.report?.(now.done, total);
  }
}
