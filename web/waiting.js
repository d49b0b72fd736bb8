// @ts-check
/**
 * Waiting for the GPU. A browser looks whether work is done when it is asked something, and else by a timer: Chromium every
 * few milliseconds, Firefox every 100, and there only a submit makes it look. So whoever waits asks: by an error scope, and by
 * an empty submit too after `PLAIN_MS`, or at once where runs were seen to end with the first. Asking takes no more than
 * `GRACE_MS` and `SHARE` of the time that is waited, and begins when runs of the same recording were done before.
 */

/** Milliseconds of asking that every wait has: a timer would cost a short run more than its own time. */
const GRACE_MS = 25;

/** Milliseconds of questions without a submit, which costs a run of a few milliseconds 3 to 6 % in Chromium (H200). */
const PLAIN_MS = 8;

/** Waits in a row for one recording that ended with their first submit, after which one begins with a submit. */
const CHANCES = 3;

/** Of their shortest, less than which it takes if it ended sooner for the submit. `DECIDED` more or fewer of these tell. */
const SOONER = 0.9;
const DECIDED = 2;

/** Of the time that a wait takes, the part that asking may take. */
const SHARE = 0.05;

/** Milliseconds that are asked through: no timer is good for them. */
const SHORT_MS = 25;

/** Milliseconds between two questions, at most. */
const LONGEST_MS = 20;

/** The longest that timers take. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Milliseconds as which an answer counts at most: it may have waited behind the work. */
const BEHIND_MS = 2;

/** Waits for a recording before its next is expected to take as long as the shortest. */
const REMEMBERED = 3;

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

/** Milliseconds of the last waits for each recording. @type {WeakMap<object, number[]>} */
const durations = new WeakMap();

/** Devices that only a submit makes look. @type {WeakSet<GPUDevice>} */
const submitNeeded = new WeakSet();

/** Recordings whose runs take as long with submits: shorter ones may yet tell. @type {WeakSet<object>} */
const undecided = new WeakSet();

/**
 * Waits in a row for a recording that ended with their first submit, the milliseconds that the shortest took, and how many
 * more of those that began with a submit ended sooner than not. Waits for other work tell nothing: it may take longer.
 * @type {WeakMap<object, {count: number, shortest: number, score: number}>}
 */
const chances = new WeakMap();

/**
 * @param {GPUDevice} device
 * @param {object} recording
 * @param {number} ms that it took
 * @param {number | undefined} submitted when the first question with a submit was asked, if one was
 * @param {boolean} tried it began with submits, to see whether that helps
 */
function learn(device, recording, ms, submitted, tried) {
  const { count, shortest, score } = chances.get(recording) ?? { count: 0, shortest: Infinity, score: 0 };
  if (tried) {
    const now = score + (ms < shortest * SOONER ? 1 : -1);
    if (ms < shortest / 2 || now >= DECIDED) submitNeeded.add(device);
    else if (now <= -DECIDED) undecided.add(recording);
    else chances.set(recording, { count: 0, shortest: Infinity, score: now });
  } else if (submitted !== undefined && ms - submitted < BEHIND_MS) {
    chances.set(recording, { count: count + 1, shortest: Math.min(ms, shortest), score });
  } else chances.delete(recording);
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
  const ms = Math.min(performance.now() - began, BEHIND_MS);
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
 * Milliseconds that the last waits have taken at least; 0 where that is not known.
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
 * @property {boolean} [exact] ask all the time
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
export async function attend(device, awaited, { recording, work = () => false, progress = () => 0, exact = false } = {}) {
  let done = false;
  const watched = awaited.finally(() => { done = true; });
  watched.catch(() => {});
  const began = performance.now();
  const expectedAt = began + expected(recording) * (1 - SHARE);
  const needed = submitNeeded.has(device);
  const open = !needed && recording !== undefined && !undecided.has(recording);
  const tried = open && (chances.get(/** @type {object} */ (recording))?.count ?? 0) >= CHANCES;
  /** @type {number | undefined} */
  let submitted;
  let asked = 0;
  let questions = 0;
  let slept = false;
  let seen = progress();
  while (!done && !isLost(device)) {
    if (!work()) {
      const early = expectedAt - performance.now();
      slept ||= early > SHORT_MS;
      const ms = exact ? 0 : early > SHORT_MS ? early - 1 : interval(device, asked);
      if (ms) await Promise.race([pause(ms), watched]);
      if (done) break;
    }
    const waited = performance.now() - began;
    const submit = exact || needed || tried || waited >= PLAIN_MS;
    if (submit) submitted ??= waited;
    asked += await ask(device, watched, submit);
    questions += 1;
    if (progress() !== seen) [seen, asked] = [progress(), 0];
  }
  if (recording && open) learn(device, recording, performance.now() - began, submitted, tried);
  if (recording) remember(recording, performance.now() - began, slept && questions < 2);
  return watched;
}

/**
 * `run`, or an error as Python's where it takes longer than it may.
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
