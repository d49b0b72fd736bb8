// @ts-check
/**
 * Run a fallback kernel until the pipeline of the optimized kernel is compiled (`pyruntime/kernels/ir/fallback.py`).
 *
 * A shader's source has two entry points. The module of each is the source without the parts that only the other one needs. The
 * fallback compiles first. `main` compiles after a run has been sent: the browser's GPU process compiles sources sequentially, and
 * a run should not wait for them. Kernels that differ only in their tile sizes share one fallback pipeline; each has its
 * `FallbackPipeline`, which stands for the pipeline of the optimized kernel.
 */

import { fallback } from './encoding.js';
import { compile, standIn } from './recording.js';

/** The fallback kernel's entry point, and the mark of its parts of a source. */
const ENTRY = 'fallback';

/** Stands for the pipeline of an optimized kernel while that compiles. */
class FallbackPipeline {
  /** @type {GPUComputePipeline | undefined} */
  optimized;

  /** @param {GPUDevice} device @param {GPUComputePipeline} pipeline of the fallback kernel @param {string} code with both kernels */
  constructor(device, pipeline, code) {
    this.device = device;
    this.pipeline = pipeline;
    this.code = code;
  }
}

/** Pipelines that compile in parallel after the first run; the next runs need CPU time, too. */
const LANES = 6;
/** Milliseconds from a first run to the first optimized kernel; without a run, from the last fallback pipeline. */
const AFTER = 10;
const ALONE = 2000;

/** Pipelines by their sources. @type {WeakMap<GPUDevice, Map<string, import('./recording.js').Begun>>} */
const made = new WeakMap();
/**
 * @typedef {object} Queue
 * @property {FallbackPipeline[]} left optimized kernels that are not compiling yet
 * @property {ReturnType<typeof setTimeout>} [timer] until they start to compile
 * @property {boolean} hasRun whether a run has been sent, after which they start to compile soon
 * @property {number} lanes pipelines that are compiling
 * @property {(() => void)[]} done listeners for the end of all compilations
 */

/** @type {WeakMap<GPUDevice, Queue>} */
const queues = new WeakMap();

/**
 * The source without the parts between the marks of a kind. Sources are split by strings: a regular expression is compiled anew
 * in each page, and takes ten times as long at its first use, between two kernels that Python plans.
 * @param {string} code @param {'optimized' | typeof ENTRY} kind
 */
function without(code, kind) {
  const [before, ...marked] = code.split(`// <${kind}>\n`);
  const end = `// </${kind}>\n`;
  return before + marked.map((part) => part.slice(part.indexOf(end) + end.length)).join('');
}

/** The source without the fallback kernel. Plans without fallback kernels have this source, too, so that the browser's cache finds it. @param {string} code */
function withoutFallback(code) {
  return without(code, ENTRY).replaceAll('// <optimized>\n', '').replaceAll('// </optimized>\n', '');
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
 * The source without comments and unused constants, in which tile sizes differ; lines keep their numbers.
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
 * Compile the fallback kernel or the optimized kernel of a source; sources that differ only in the other one share a pipeline.
 * @param {GPUDevice} device
 * @param {string} code
 * @param {typeof ENTRY | 'main'} entryPoint
 * @returns {import('./recording.js').Begun}
 */
function madeOf(device, code, entryPoint) {
  const known = made.get(device) ?? new Map();
  made.set(device, known);
  const text = entryPoint === ENTRY ? plain(without(code, 'optimized')) : withoutFallback(code);
  const found = known.get(text) ?? compile(device, text, entryPoint);
  known.set(text, found);
  found.pipeline.catch(() => known.delete(text));
  return found;
}

/**
 * Compile a source: its fallback kernel first, where it has one, and the optimized kernel later.
 * @param {GPUDevice} device
 * @param {string} code
 */
export function compileWithFallback(device, code) {
  if (!code.includes(`// <${ENTRY}>`)) return compile(device, code);
  const begun = madeOf(device, code, ENTRY);
  const pipeline = begun.pipeline.then((ready) => {
    const standing = new FallbackPipeline(device, ready, code);
    queueOf(device).left.push(standing);
    begin(device, ALONE);
    return standIn(standing, ready);
  });
  pipeline.catch(() => {}); // the caller that awaits it reports the error
  return { ...begun, pipeline };
}

/**
 * `compileWithFallback`, and send the request to the GPU process at once: Python may plan for long, and only a submit flushes requests.
 * @param {GPUDevice} device
 * @param {string} code
 */
export function compileSoon(device, code) {
  const begun = compileWithFallback(device, code);
  device.queue.submit([]);
  return begun;
}

/** Wait for pipelines. @param {{pipeline: Promise<GPUComputePipeline>}[]} begun */
export function ready(...begun) {
  return Promise.all(begun.map(({ pipeline }) => pipeline));
}

/** Start to compile the optimized kernels after a delay. @param {GPUDevice} device @param {number} after milliseconds */
function begin(device, after) {
  const queue = queueOf(device);
  clearTimeout(queue.timer);
  queue.timer = setTimeout(() => {
    queue.timer = undefined;
    queue.hasRun = false;
    while (queue.lanes < LANES && queue.left.length) work(queue);
  }, queue.hasRun ? Math.min(after, AFTER) : after);
}

/** Compile pipelines sequentially. @param {Queue} queue */
async function work(queue) {
  queue.lanes += 1;
  for (let next = queue.left.shift(); next; next = queue.left.shift()) {
    try {
      next.optimized = await madeOf(next.device, next.code, 'main').pipeline;
    } catch (error) {
      // The fallback kernel stays in use.
      console.warn(`pyruntime: a kernel stays slow, as its pipeline could not be made: ${/** @type {Error} */ (error).message}`);
    }
  }
  queue.lanes -= 1;
  if (!queue.lanes) queue.done.splice(0).forEach((done) => done());
}

/** Resolve when every optimized kernel is compiled. @param {GPUDevice} device */
export async function whenOptimized(device) {
  const queue = queueOf(device);
  if (!queue.left.length && !queue.lanes) return;
  begin(device, 0);
  await new Promise((done) => { queue.done.push(() => done(undefined)); });
}

fallback.current = (pipeline) => (pipeline instanceof FallbackPipeline ? pipeline.optimized ?? pipeline.pipeline : pipeline);

fallback.sent = (device) => {
  const queue = queues.get(device);
  if (queue?.timer === undefined || queue.hasRun) return;
  queue.hasRun = true;
  device.queue.onSubmittedWorkDone().then(() => begin(device, AFTER), () => {});
};
