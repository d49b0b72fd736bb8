// @ts-check
/** Encode the compute passes of a recording into command buffers; those of the next run are encoded during the current one. */

/**
 * @typedef {import('./recording.js').Command} Command
 *
 * @typedef {object} Last
 * @property {number[]} numbers workgroup counts of the recording's last run; a run with other counts is not pre-encoded
 * @property {GPUCommandBuffer[]} [passes] of the next run, which can be submitted once; one for each submit
 */

/**
 * Dispatches in the first submit, and at most in one: each has twice as many as the one before. So the GPU works
 * on the first while the others are encoded. Few go in one: a submit costs 30 microseconds, a dispatch 5 to 10.
 */
const FIRST = 16;
const MOST = 96;
const WHOLE = 48;

/** Hooks that fallback.js sets: `current` gives the pipeline to encode in the place of one, `sent` hears of each run that was submitted. */
export const fallback = {
  /** @param {GPUComputePipeline} pipeline */
  current: (pipeline) => pipeline,
  /** @param {GPUDevice} _ */
  sent: (_) => {},
};

/** @type {WeakMap<Command[], Last>} */
const last = new WeakMap();

/** The last run, if its grids counted the same. @param {Command[]} commands @param {number[]} numbers */
function same(commands, numbers) {
  const found = last.get(commands);
  return found && String(found.numbers) === String(numbers) ? found : undefined;
}

/**
 * Encode a compute pass of these commands.
 * @param {GPUCommandEncoder} encoder
 * @param {Command[]} commands
 * @param {number[]} numbers what the grids count
 * @param {GPUComputePassDescriptor} [descriptor]
 */
export function encode(encoder, commands, numbers, descriptor) {
  const pass = encoder.beginComputePass(descriptor);
  let current;
  for (const { pipeline, group, grid, scaled } of commands) {
    if (pipeline !== current) pass.setPipeline(fallback.current(pipeline));
    current = pipeline;
    pass.setBindGroup(0, group);
    const [x, y, z] = scaled.length ? grid.map((n, i) => (scaled[i] < 0 ? n : numbers[scaled[i]])) : grid;
    pass.dispatchWorkgroups(x, y, z);
  }
  pass.end();
}

/** Split commands into those of each submit. @param {Command[]} commands in the order in which they run */
export function submitsOf(commands) {
  const parts = [];
  let count = commands.length > WHOLE ? FIRST : WHOLE;
  for (let first = 0; first < commands.length; first += count, count = Math.min(2 * count, MOST)) {
    parts.push(commands.slice(first, first + count));
  }
  return parts;
}

/**
 * @param {GPUDevice} device
 * @param {Command[]} commands
 * @param {number[]} numbers what the grids count
 */
export function passOf(device, commands, numbers) {
  const encoder = device.createCommandEncoder();
  encode(encoder, commands, numbers);
  return encoder.finish();
}

/**
 * The passes of a run, where they were pre-encoded.
 * @param {Command[]} commands
 * @param {number[]} numbers what the grids count
 * @returns {GPUCommandBuffer[] | undefined} as many as `submitsOf` has parts of them
 */
export function takePreEncoded(commands, numbers) {
  const found = same(commands, numbers);
  const passes = found?.passes;
  if (found) delete found.passes;
  return passes;
}

/**
 * Encode the passes of a recording's next run ahead of time, if its last two runs were the same. Encoding 114 dispatches takes
 * this thread some 0.2 ms, and validating them as long in the browser's GPU process. Their errors are reported by the submit;
 * a failure here leaves encoding to the next run.
 * @param {GPUDevice} device
 * @param {{commands: Command[], dispatches: Command[], numbers: number[]}} run the commands as recorded and as they run, and
 *   what the grids count
 */
export function preEncode(device, { commands, dispatches, numbers }) {
  fallback.sent(device);
  const found = same(commands, numbers);
  if (!found) last.set(commands, { numbers });
  if (!found || found.passes) return;
  device.pushErrorScope('validation');
  try {
    found.passes = submitsOf(dispatches).map((part) => passOf(device, part, numbers));
  } catch {
    // `found` is as it was
  } finally {
    device.popErrorScope().catch(() => {});
  }
}
