// @ts-check
/**
 * Measure the time of each dispatch, by GPU timestamps or by one submit for each dispatch.
 * Source: WebGPU specification, section 20 (queries): timestamps are nanoseconds, possibly quantised.
 */

import { encode } from './encoding.js';
import { ordered } from './repeated.js';
import { caught, guarded } from './staging.js';
import { attend } from './waiting.js';

/** @typedef {import('./recording.js').Command} Command */

/** Dispatches of one query set, which has 4096 queries at most. */
const MOST = 2048;

/**
 * Run each command in a separate pass.
 * @param {GPUDevice} device
 * @param {Command[]} recorded
 * @param {number[]} numbers what the grids count
 * @param {boolean} byQueries the device has 'timestamp-query'
 * @returns {Promise<Float64Array>} begin and duration of each in nanoseconds, from the begin of the first
 */
export async function timed(device, recorded, numbers, byQueries) {
  const commands = ordered(recorded, numbers);
  if (!byQueries) return Float64Array.from(await bySubmits(device, commands, numbers));
  /** @type {bigint[]} */
  const ticks = [];
  for (let first = 0; first < commands.length; first += MOST) {
    ticks.push(...await byTimestamps(device, commands.slice(first, first + MOST), numbers));
  }
  const begins = ticks.filter((_, i) => i % 2 === 0);
  const origin = begins.reduce((least, begin) => (begin < least ? begin : least), begins[0] ?? 0n);
  return Float64Array.from(ticks, (tick, i) => (
    i % 2 ? Math.max(0, Number(tick - ticks[i - 1])) : Number(tick - origin)));
}

/** @param {GPUDevice} device @param {Command[]} commands @param {number[]} numbers */
async function bySubmits(device, commands, numbers) {
  const done = () => attend(device, device.queue.onSubmittedWorkDone(), { exact: true });
  await done();
  const spans = [];
  const origin = performance.now();
  for (const command of commands) {
    const began = performance.now();
    const scopes = guarded(device, () => {
      const encoder = device.createCommandEncoder();
      encode(encoder, [command], numbers);
      device.queue.submit([encoder.finish()]);
    });
    await done();
    spans.push(1e6 * (began - origin), 1e6 * (performance.now() - began));
    await caught(scopes);
  }
  return spans;
}

/**
 * When the GPU began and ended each command.
 * @param {GPUDevice} device
 * @param {Command[]} commands
 * @param {number[]} numbers
 */
async function byTimestamps(device, commands, numbers) {
  const count = 2 * commands.length;
  /** @type {{destroy: () => void}[]} */
  const made = [];
  const scopes = [];
  try {
    const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
    const [resolved, staging] = [QUERY_RESOLVE | COPY_SRC, MAP_READ | COPY_DST].map((usage) => {
      const buffer = device.createBuffer({ label: 'timestamps', size: 8 * count, usage });
      made.push(buffer);
      return buffer;
    });
    const querySet = device.createQuerySet({ type: 'timestamp', count });
    made.push(querySet);
    scopes.push(...guarded(device, () => {
      const encoder = device.createCommandEncoder();
      commands.forEach((command, i) => encode(encoder, [command], numbers, {
        timestampWrites: { querySet, beginningOfPassWriteIndex: 2 * i, endOfPassWriteIndex: 2 * i + 1 } }));
      encoder.resolveQuerySet(querySet, 0, count, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, staging, 0, 8 * count);
      device.queue.submit([encoder.finish()]);
    }));
    await attend(device, staging.mapAsync(GPUMapMode.READ));
    await caught(scopes);
    return [...new BigUint64Array(staging.getMappedRange())];
  } finally {
    for (const one of made) one.destroy();
  }
}
