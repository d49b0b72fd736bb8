// @ts-check
/**
 * Kernels that run until their pipelines are there (`pyruntime/kernels/ir/fallback.py`): a shader's text has two entry points, and the
 * module of either is the text without what the other alone uses. `fallback` compiles first; `main` when a run has been sent, so
 * that the browser's GPU process, which reads one text after another, is not busy when somebody waits for it. Kernels that differ
 * in the size of their tiles alone have one fallback pipeline: each has a `Fallback` of its own, which stands for its pipeline.
 */

import { fallback } from './encoding.js';
import { compile, standIn } from './recording.js';

/** What stands for a pipeline. */
class Fallback {
  /** @type {GPUComputePipeline | undefined} */
  optimized;

  /** @param {GPUDevice} device @param {GPUComputePipeline} pipeline of the fallback kernel @param {string} code with both kernels */
  constructor(device, pipeline, code) {
    this.device = device;
    this.pipeline = pipeline;
    this.code = code;
  }
}

/** Pipelines that compile at once behind the first run: the next runs want some of the processor, too. */
const LANES = 6;
/** Milliseconds behind a first run, and behind the last pipeline where there is none. */
const AFTER = 10;
const ALONE = 2000;

/** Pipelines by their texts. @type {WeakMap<GPUDevice, Map<string, import('./recording.js').Begun>>} */
const made = new WeakMap();
/**
 * @typedef {object} Queue
 * @property {Fallback[]} left whose optimized kernels have not been begun
 * @property {ReturnType<typeof setTimeout>} [timer] until these are begun with
 * @property {boolean} hasRun they are, soon: a run has been sent
 * @property {number} lanes at work
 * @property {(() => void)[]} done whom to tell
 */

/** @type {WeakMap<GPUDevice, Queue>} */
const queues = new WeakMap();

/**
 * The text without what stands between marks of a kind. Texts are taken apart by strings: regular expressions are read anew in
 * each page, and take ten times as long at first, between one kernel that Python plans and the next.
 * @param {string} code @param {'optimized' | 'fallback'} kind
 */
function without(code, kind) {
  const [before, ...marked] = code.split(`// <${kind}>\n`);
  const end = `// </${kind}>\n`;
  return before + marked.map((part) => part.slice(part.indexOf(end) + end.length)).join('');
}

/** As `without_fallback` of kernels/ir/fallback.py: where a plan is much work, the same kernel has this text, which the browser then knows. @param {string} code */
function withoutFallback(code) {
  return without(code, 'fallback').replaceAll('// <optimized>\n', '').replaceAll('// </optimized>\n', '');
}

/** @param {GPUDevice} device */
function queueOf(device) {
  const found = queues.get(device) ?? { left: [], hasRun: false, lanes: 0, done: [] };
  queues.set(device, found);
  return found;
}

/** Whether a character may stand in a name; NaN is none. @param {number} code */
function inNames(code) {
  return (code >= 97 && code <= 122) || (code >= 65 && code <= 90) || (code >= 48 && code <= 57) || code === 95;
}

/** Whether a name occurs more than once. @param {string} text @param {string} name */
function isUsed(text, name) {
  let times = 0;
  for (let at = text.indexOf(name); at >= 0 && times < 2; at = text.indexOf(name, at + name.length)) {
    if (!inNames(text.charCodeAt(at - 1)) && !inNames(text.charCodeAt(at + name.length))) times += 1;
  }
  return times > 1;
}

/**
 * The text without comments and without constants that it does not use, which tell tiles apart; lines keep their numbers.
 * @param {string} code
 */
function plain(code) {
  const lines = code.split('\n').map((line) => (line.startsWith('//') ? '' : line));
  let text = lines.join('\n');
  for (let i = lines.length - 1; i >= 0; i--) { // constants use those above them
    if (!lines[i].startsWith('const ') || lines[i].indexOf(';') !== lines[i].length - 1) continue;
    const name = /\w+/.exec(lines[i].slice(6))?.[0];
    if (!name || isUsed(text, name)) continue;
    text = text.replace(lines[i], '');
  }
  return text;
}

/**
 * The pipeline of a source's fallback kernel, or of its optimized one, under way; texts that differ in the other alone have one.
 * @param {GPUDevice} device
 * @param {string} code
 * @param {'fallback' | 'main'} entryPoint
 * @returns {import('./recording.js').Begun}
 */
function madeOf(device, code, entryPoint) {
  const known = made.get(device) ?? new Map();
  made.set(device, known);
  const text = entryPoint === 'fallback' ? plain(without(code, 'optimized')) : withoutFallback(code);
  const found = known.get(text) ?? compile(device, text, entryPoint);
  known.set(text, found);
  found.pipeline.catch(() => known.delete(text));
  return found;
}

/**
 * `compile` of recording.js; where the text has a fallback kernel, what stands for its pipeline.
 * @param {GPUDevice} device
 * @param {string} code
 */
export function compileFallback(device, code) {
  if (!code.includes('// <fallback>')) return compile(device, code);
  const begun = madeOf(device, code, 'fallback');
  const pipeline = begun.pipeline.then((ready) => {
    const standing = new Fallback(device, ready, code);
    queueOf(device).left.push(standing);
    begin(device, ALONE);
    return standIn(standing, ready);
  });
  pipeline.catch(() => {}); // told by who waits for it
  return { ...begun, pipeline };
}

/** The pipeline of a text's optimized kernel, under way. @param {GPUDevice} device @param {string} code */
export function compileOptimized(device, code) {
  return madeOf(device, code, 'main');
}

/**
 * `compileFallback`, and have the GPU process begin with it: Python may go on for long, and what it has asked for is sent by a submit.
 * @param {GPUDevice} device
 * @param {string} code
 */
export function compileSoon(device, code) {
  const begun = compileFallback(device, code);
  device.queue.submit([]);
  return begun;
}

/** The pipelines that were begun with, when all are there. @param {{pipeline: Promise<GPUComputePipeline>}[]} begun */
export function ready(...begun) {
  return Promise.all(begun.map(({ pipeline }) => pipeline));
}

/** Begin with the optimized kernels after a while. @param {GPUDevice} device @param {number} after */
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
    try {
      next.optimized = await madeOf(next.device, next.code, 'main').pipeline;
    } catch (error) {
      // The fallback kernel stays in use; a device that is lost has nothing to go on with.
      console.warn(`pyruntime: a kernel stays slow, as its pipeline could not be made: ${/** @type {Error} */ (error).message}`);
    }
  }
  queue.lanes -= 1;
  if (!queue.lanes) queue.done.splice(0).forEach((done) => done());
}

/** Resolves when no fallback kernel runs any more. @param {GPUDevice} device */
export async function settled(device) {
  const queue = queueOf(device);
  if (!queue.left.length && !queue.lanes) return;
  begin(device, 0);
  await new Promise((done) => { queue.done.push(() => done(undefined)); });
}

fallback.current = (pipeline) => (pipeline instanceof Fallback ? pipeline.optimized ?? pipeline.pipeline : pipeline);

fallback.sent = (device) => {
  const queue = queues.get(device);
  if (queue?.timer === undefined || queue.hasRun) return;
  queue.hasRun = true;
  device.queue.onSubmittedWorkDone().then(() => begin(device, AFTER), () => {});
};
