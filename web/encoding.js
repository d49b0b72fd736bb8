// @ts-check
/**
 * Compute passes of a recording, in command buffers. Those of its next run are encoded while this one is waited for: to write
 * and send 114 dispatches takes this thread some 0.2 ms, and to check them the browser's GPU process as long, in which the GPU
 * has nothing to do.
 */

/**
 * @typedef {import('./recording.js').Command} Command
 *
 * @typedef {object} Encoded the passes of one run, which can be submitted once
 * @property {number[]} numbers what the grids count
 * @property {GPUCommandBuffer[]} passes each of them for a submit of its own
 */

/**
 * Dispatches in the first submit, and at most in one: each has twice as many as the one before. A submit costs 30 microseconds,
 * a dispatch 5 to 10 of the browser's GPU process, so the GPU works on the first while the others are encoded. So few that it
 * would not be worth it go in one: a small model, or a token of a small decoder.
 */
const FIRST = 16;
const MOST = 96;
const WHOLE = 48;

/** Of the next run of each recording. @type {WeakMap<Command[], Encoded>} */
const ahead = new WeakMap();

/** What the grids of each recording's last run counted: one whose sizes change each time is not encoded ahead. @type {WeakMap<Command[], number[]>} */
const counted = new WeakMap();

/** @param {number[]} some @param {number[] | undefined} others */
const isSame = (some, others) => some.length === others?.length && some.every((number, i) => number === others[i]);

/**
 * A pass of these commands.
 * @param {GPUCommandEncoder} encoder
 * @param {Command[]} commands
 * @param {number[]} numbers what the grids count
 * @param {GPUComputePassDescriptor} [descriptor]
 */
export function encode(encoder, commands, numbers, descriptor) {
  const pass = encoder.beginComputePass(descriptor);
  let current;
  for (const { pipeline, group, grid, scaled } of commands) {
    if (pipeline !== current) pass.setPipeline(pipeline);
    current = pipeline;
    pass.setBindGroup(0, group);
    const [x, y, z] = scaled.length ? grid.map((n, i) => (scaled[i] < 0 ? n : numbers[scaled[i]])) : grid;
    pass.dispatchWorkgroups(x, y, z);
  }
  pass.end();
}

/**
 * The commands of each submit.
 * @param {Command[]} commands
 */
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
 * The passes of a run, where they were encoded ahead.
 * @param {Command[]} commands
 * @param {number[]} numbers what the grids count
 * @returns {GPUCommandBuffer[] | undefined} as many as `submitsOf` has parts
 */
export function takeAhead(commands, numbers) {
  const found = ahead.get(commands);
  ahead.delete(commands);
  return found && isSame(numbers, found.numbers) ? found.passes : undefined;
}

/**
 * Encode the passes of the next run of a recording, if it is the same as this one and the one before. What is wrong with them
 * is told by their submit, and what fails here by the run that encodes them then: this one has nothing to do with it.
 * @param {GPUDevice} device
 * @param {Command[]} commands
 * @param {number[]} numbers what the grids count
 */
export function encodeAhead(device, commands, numbers) {
  const again = isSame(numbers, counted.get(commands));
  counted.set(commands, numbers);
  if (!again || ahead.has(commands)) return;
  device.pushErrorScope('validation');
  try {
    ahead.set(commands, { numbers, passes: submitsOf(commands).map((part) => passOf(device, part, numbers)) });
  } catch {
    ahead.delete(commands);
  } finally {
    device.popErrorScope().catch(() => {});
  }
}
