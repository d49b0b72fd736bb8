// @ts-check
/**
 * Wait for the GPU. A browser checks for completed work when it receives a request, else by a timer: Chromium every few
 * milliseconds, Firefox every 100, and Firefox only after a submit. So a wait sends requests: an error scope, and an empty
 * submit every `SUBMIT_MS`. Requests take at most `GRACE_MS` plus `SHARE` of the time that is waited.
 */

/** Milliseconds of asking that every wait has: a timer would cost a short run more than its own time. */
const GRACE_MS = 25;

/** Milliseconds between two submits: with one in each question, runs of a few milliseconds take 3 to 6 % longer in Chromium (H200). */
const SUBMIT_MS = 2;

/** Of the time that a wait takes, the part that asking may take. */
const SHARE = 0.05;

/** Longest time between two polls of the GPU, in milliseconds. */
const LONGEST_MS = 20;

/** The longest that timers take. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Limit in milliseconds of an answer's measured cost: it may have waited for the work itself. */
const MOST_COST_MS = 2;

/** What a question costs each device in milliseconds: a running mean, since clocks may be coarse. @type {WeakMap<GPUDevice, number>} */
const costs = new WeakMap();

/** They fulfil nothing any more. @type {WeakSet<GPUDevice>} */
const lost = new WeakSet();

/** Devices of which a loss is noted. @type {WeakSet<GPUDevice>} */
const heard = new WeakSet();

/** Whether a device was lost, as far as that is known; a loss from the first question on is noted. @param {GPUDevice} device */
export function isLost(device) {
  if (!heard.has(device)) {
    heard.add(device);
    device.lost?.then(() => lost.add(device));
  }
  return lost.has(device);
}

/** @param {number} ms @returns {Promise<void>} */
function pause(ms) {
  return new Promise((resolve) => { setTimeout(resolve, ms); });
}

/**
 * Ask, and wait for the answer or what is waited for.
 * @param {GPUDevice} device
 * @param {Promise<unknown>} watched
 * @param {boolean} submit
 * @returns {Promise<number>} the milliseconds that count
 */
async function ask(device, watched, submit) {
  const began = performance.now();
  device.pushErrorScope('validation');
  if (submit) device.queue.submit([]);
  const answer = device.popErrorScope();
  answer.catch(() => {}); // `watched` tells of a lost device
  await Promise.race([answer, watched]);
  const ms = Math.min(performance.now() - began, MOST_COST_MS);
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
 * @typedef {object} Waiting
 * @property {() => boolean} [work] does one piece of other work between two polls; returns false when none is left
 * @property {boolean} [exact] poll without pauses
 * @property {() => unknown} [progress] a value that changes when a part of the result has come: polling then starts anew
 */

/**
 * Await a promise that the GPU's progress fulfils, polling the GPU so that it is fulfilled soon.
 * @template T
 * @param {GPUDevice} device
 * @param {Promise<T>} awaited
 * @param {Waiting} [waiting]
 * @returns {Promise<T>}
 */
export async function attend(device, awaited, { work = () => false, progress = () => 0, exact = false } = {}) {
  let done = false;
  const watched = awaited.finally(() => { done = true; });
  watched.catch(() => {});
  let submitted = performance.now();
  let asked = 0;
  let seen = progress();
  while (!done && !isLost(device)) {
    if (!work()) {
      const ms = exact ? 0 : interval(device, asked);
      if (ms) await Promise.race([pause(ms), watched]);
      if (done) break;
    }
    const now = performance.now();
    const submit = exact || now - submitted >= SUBMIT_MS;
    if (submit) submitted = now;
    asked += await ask(device, watched, submit);
    if (progress() !== seen) [seen, asked] = [progress(), 0];
  }
  return watched;
}

/**
 * Await a run.
 * @throws {Error} as Python throws: the run took more than `seconds`
 * @template T
 * @param {Promise<T>} run
 * @param {number | undefined} seconds
 * @returns {Promise<T>}
 */
export async function limited(run, seconds) {
  if (!seconds) return run;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const over = new Promise((_, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error(`the run took more than ${seconds} s, the limit `
      + '`run_seconds`. Raise it with the config entry \'pyruntime.limits.run_seconds\''), { name: 'Fail' })),
    Math.min(1000 * seconds, LONGEST_TIMER_MS));
  });
  try {
    return await Promise.race([run, /** @type {Promise<never>} */ (over)]);
  } finally {
    clearTimeout(timer);
  }
}
