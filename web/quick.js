// @ts-check
/**
 * Kernels that run until their pipelines are there (`pyruntime/kernels/quick.py`): a shader's text has two entry points, and the
 * module of either is the text without what the other alone uses. `quick` compiles first; `main` when a run has been sent, so
 * that the browser's GPU process, which reads one text after another, is not busy when somebody waits for it.
 */

import { quick } from './encoding.js';
import { compile } from './recording.js';

/**
 * @typedef {object} Waiting what a quick pipeline stands for
 * @property {GPUDevice} device
 * @property {string} code of the whole module
 * @property {GPUComputePipeline} [whole]
 */

/** Pipelines that compile at once behind the first run: the next runs want some of the processor, too. */
const LANES = 6;
/** Milliseconds behind a first run, and behind the last pipeline where there is none. */
const AFTER = 10;
const ALONE = 2000;

/** By quick pipeline. @type {WeakMap<GPUComputePipeline, Waiting>} */
const wanted = new WeakMap();
/**
 * @typedef {object} Queue
 * @property {GPUComputePipeline[]} left quick ones
 * @property {ReturnType<typeof setTimeout>} [timer] until these are begun with
 * @property {boolean} hasRun they are, soon: a run has been sent
 * @property {number} lanes at work
 * @property {(() => void)[]} done whom to tell
 */

/** @type {WeakMap<GPUDevice, Queue>} */
const queues = new WeakMap();

/** The text without a marked part. @param {string} code @param {'whole' | 'quick'} part */
function without(code, part) {
  return code.replace(new RegExp(`^// <${part}>$[^]*?^// </${part}>$\\n`, 'gm'), '');
}

/** @param {GPUDevice} device */
function queueOf(device) {
  const found = queues.get(device) ?? { left: [], hasRun: false, lanes: 0, done: [] };
  queues.set(device, found);
  return found;
}

/**
 * `compile` of recording.js; where the text has a quick kernel, the pipeline is its.
 * @param {GPUDevice} device
 * @param {string} code
 */
export function compileQuickly(device, code) {
  if (!code.includes('// <quick>')) return compile(device, code);
  const made = compile(device, without(code, 'whole'), 'quick');
  made.pipeline.then((pipeline) => {
    wanted.set(pipeline, { device, code: without(code, 'quick') });
    queueOf(device).left.push(pipeline);
    begin(device, ALONE);
  }, () => {}); // told by who waits for it
  return made;
}

/** Begin with the whole kernels after a while. @param {GPUDevice} device @param {number} after */
function begin(device, after) {
  const queue = queueOf(device);
  clearTimeout(queue.timer);
  queue.timer = setTimeout(() => {
    queue.timer = undefined;
    queue.hasRun = false;
    while (queue.lanes < LANES && queue.left.length) work(queue);
  }, queue.hasRun ? Math.min(after, AFTER) : after);
}

/** One pipeline after another. @param {Queue} queue */
async function work(queue) {
  queue.lanes += 1;
  for (let next = queue.left.shift(); next; next = queue.left.shift()) {
    const waiting = /** @type {Waiting} */ (wanted.get(next));
    try {
      waiting.whole = await compile(waiting.device, waiting.code).pipeline;
    } catch (error) {
      // The quick one goes on; a device that is lost has nothing to go on with.
      console.warn(`pyruntime: a kernel stays slow, as its pipeline could not be made: ${/** @type {Error} */ (error).message}`);
      wanted.delete(next);
    }
  }
  queue.lanes -= 1;
  if (!queue.lanes) queue.done.splice(0).forEach((done) => done());
}

/** Resolves when no quick kernel runs any more. @param {GPUDevice} device */
export async function settled(device) {
  const queue = queueOf(device);
  if (!queue.left.length && !queue.lanes) return;
  begin(device, 0);
  await new Promise((done) => { queue.done.push(() => done(undefined)); });
}

quick.current = (pipeline) => wanted.get(pipeline)?.whole ?? pipeline;

quick.sent = (device) => {
  const queue = queues.get(device);
  if (queue?.timer === undefined || queue.hasRun) return;
  queue.hasRun = true;
  device.queue.onSubmittedWorkDone().then(() => begin(device, AFTER), () => {});
};
