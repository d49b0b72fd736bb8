// @ts-check
/**
 * Waiting for the GPU. A browser looks at once whether work is done when it is asked something, and else by a timer:
 * Chromium every few milliseconds, Firefox every 100, and there only a submit makes it look. So whoever waits asks, with
 * an empty submit and an error scope. What a question costs is measured: asking takes no more than `GRACE_MS` and
 * `SHARE` of the time that is waited, and begins when runs of the same recording were done before.
 */

/** Milliseconds of asking that every wait has. */
const GRACE_MS = 2;

/** Of the time that a wait takes, the part that asking may take. */
const SHARE = 0.05;

/** Milliseconds that a timer is good for: shorter times are asked through. */
const SHORT_MS = 4;

/** The longest time between two questions, in milliseconds. */
const LONGEST_MS = 20;

/** Milliseconds as which an answer counts at most: it may have waited behind the work that it asks about. */
const BEHIND_MS = 2;

/** Waits for a recording before its next is expected to take as long, namely as the shortest of them. */
const REMEMBERED = 3;

/** What a question costs each device in milliseconds: a running mean, since clocks may be coarse. @type {WeakMap<GPUDevice, number>} */
const costs = new WeakMap();

/** Devices that were lost: they fulfil nothing any more. @type {WeakSet<GPUDevice>} */
const lost = new WeakSet();

/** Milliseconds of the last waits for each recording. @type {WeakMap<object, number[]>} */
const durations = new WeakMap();

/** @param {number} ms @returns {Promise<void>} */
function pause(ms) {
  return new Promise((resolve) => { setTimeout(resolve, ms); });
}

/**
 * Ask, and wait for the answer or what is waited for.
 * @param {GPUDevice} device
 * @param {Promise<unknown>} watched
 * @returns {Promise<number>} the milliseconds that count
 */
async function ask(device, watched) {
  const began = performance.now();
  device.pushErrorScope('validation');
  device.queue.submit([]);
  const answer = device.popErrorScope();
  answer.catch(() => {}); // `watched` tells of a lost device
  await Promise.race([answer, watched]);
  const ms = Math.min(performance.now() - began, BEHIND_MS);
  if (!costs.has(device)) device.lost?.then(() => lost.add(device));
  const known = costs.get(device) ?? ms;
  costs.set(device, known + (ms - known) / 16);
  return ms;
}

/**
 * How long to wait before the next question, in milliseconds.
 * @param {GPUDevice} device
 * @param {number} asked milliseconds of asking so far
 */
function interval(device, asked) {
  return asked < GRACE_MS ? 0 : Math.min(LONGEST_MS, Math.max(1, (costs.get(device) ?? 0) / SHARE));
}

/**
 * Milliseconds that waits for `recording` have taken at least, of late; 0 where that is not known.
 * @param {object | undefined} recording
 */
function expected(recording) {
  const known = recording && durations.get(recording);
  return known?.length === REMEMBERED ? Math.min(...known) : 0;
}

/**
 * @param {object} recording
 * @param {number} ms
 * @param {boolean} early it may have taken less: nobody had asked
 */
function remember(recording, ms, early) {
  if (early) durations.delete(recording);
  else durations.set(recording, [...durations.get(recording) ?? [], ms].slice(-REMEMBERED));
}

/**
 * @typedef {object} Waiting
 * @property {object} [recording] what the GPU does, where it will do so again
 * @property {() => boolean} [work] does a part of what there is to do meanwhile; false when nothing is left
 * @property {() => unknown} [progress] changes when a part of what is waited for has come: asking begins anew
 */

/**
 * `awaited`, which the GPU's progress fulfils, soon after it can be.
 * @template T
 * @param {GPUDevice} device
 * @param {Promise<T>} awaited
 * @param {Waiting} [waiting]
 * @returns {Promise<T>}
 */
export async function attend(device, awaited, { recording, work = () => false, progress = () => 0 } = {}) {
  let done = false;
  const watched = awaited.finally(() => { done = true; });
  watched.catch(() => {});
  const began = performance.now();
  const expectedAt = began + expected(recording) * (1 - SHARE);
  let asked = 0;
  let questions = 0;
  let slept = false;
  let seen = progress();
  while (!done && !lost.has(device)) {
    if (!work()) {
      const early = expectedAt - performance.now();
      slept ||= early > SHORT_MS;
      const ms = early > SHORT_MS ? early - 1 : interval(device, asked);
      if (ms) await Promise.race([pause(ms), watched]);
      if (done) break;
    }
    asked += await ask(device, watched);
    questions += 1;
    if (progress() !== seen) [seen, asked] = [progress(), 0];
  }
  if (recording) remember(recording, performance.now() - began, slept && questions < 2);
  return watched;
}
