// @ts-check
/**
 * A GPU that has little to do lowers its clock, and takes some 200 ms of work to raise it again: of a text's first 64 tokens most
 * were computed at a sixth of it (bench/README.md). While the last of a decoder's weights go up it has no shader to run: a few
 * workgroups at work then have the clock up when the first prompt comes. Nobody waits for them.
 */

import { attend } from '../waiting.js';

/** Milliseconds of work at most. */
const MOST_MS = 400;

/** Milliseconds that the first dispatch may take: where it takes longer, processors compute, or others have the GPU. */
const SLOW_MS = 15;

/** Workgroups of a dispatch: what a GPU does side by side, and a software adapter one after the other. */
const GROUPS = 128;

/** Dispatches that are queued at once: what goes up meanwhile waits no longer than for these. */
const QUEUED = 2;

const WORK = `
@group(0) @binding(0) var<storage, read_write> x: array<f32, ${64 * GROUPS}>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3u) {
  var value = x[at.x];
  for (var step = 0u; step < 10000u; step++) {
    value = fma(value, 0.999, 0.5);
  }
  x[at.x] = value;
}
`;

/** What queues one dispatch, and is fulfilled when that is done. @param {GPUDevice} device @param {GPUBuffer} buffer */
async function worker(device, buffer) {
  const module = device.createShaderModule({ label: 'awake', code: WORK });
  const pipeline = await device.createComputePipelineAsync({ label: 'awake', layout: 'auto', compute: { module } });
  const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer } }] });
  return async () => {
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(GROUPS);
    pass.end();
    device.queue.submit([encoder.finish()]);
    await attend(device, device.queue.onSubmittedWorkDone());
  };
}

/**
 * Have the GPU at work until `isOver`, for `MOST_MS` at most.
 * @param {GPUDevice} device
 * @param {() => boolean} isOver
 * @returns {Promise<number>} dispatches
 */
export async function keepAwake(device, isOver) {
  const buffer = device.createBuffer({ label: 'awake', size: 4 * 64 * GROUPS, usage: GPUBufferUsage.STORAGE });
  let count = 0;
  try {
    const work = await worker(device, buffer);
    const end = performance.now() + MOST_MS;
    const goOn = () => !isOver() && performance.now() < end;
    if (!goOn()) return count;
    const began = performance.now();
    await work();
    count += 1;
    if (performance.now() - began > SLOW_MS) return count;
    await Promise.all(Array.from({ length: QUEUED }, async () => {
      for (; goOn(); count++) await work();
    }));
    return count;
  } finally {
    buffer.destroy();
  }
}
