// @ts-check
/**
 * Rates of the GPU without any library: memory bandwidth, dispatch overhead, readback latency. A rate is the slope of time over the number
 * of dispatches by the page's clock, which excludes the cost of a submit.
 */
import { quantile, rounded } from './statistics.js';

/** Least difference of two times, in milliseconds, to compute a slope from. */
const LEAST_MS = 60;
const TRIES = 3;
const STREAM_BYTES = 128 << 20;
const SOFTWARE_STREAM_BYTES = 8 << 20;
const MOST_DISPATCHES = 1 << 16;
const READBACKS = 21;

const COPY = `
@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> result: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = id.y * groups.x * 256u + id.x;
  if (i < arrayLength(&source)) { result[i] = source[i]; }
}`;

const COUNT = `
@group(0) @binding(0) var<storage, read_write> value: array<u32>;
@compute @workgroup_size(1)
fn main() { value[0] = value[0] + 1u; }`;

/**
 * @param {GPUDevice} device
 * @param {string} code
 * @param {GPUBuffer[]} buffers
 */
async function kernel(device, code, buffers) {
  const module = device.createShaderModule({ code });
  const pipeline = await device.createComputePipelineAsync({ layout: 'auto', compute: { module } });
  const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
  return { pipeline, group: device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }) };
}

/** @param {GPUDevice} device @param {Awaited<ReturnType<typeof kernel>>} made @param {number} count @param {number} x @param {number} [y] */
function encoded(device, { pipeline, group }, count, x, y = 1) {
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  for (let i = 0; i < count; i++) pass.dispatchWorkgroups(x, y);
  pass.end();
  return encoder;
}

/**
 * Return the milliseconds of one dispatch among many; the number grows until they take long enough.
 * @param {GPUDevice} device
 * @param {(count: number) => GPUCommandEncoder} encode
 * @param {AbortSignal} signal
 */
async function slope(device, encode, signal) {
  const timed = async (/** @type {number} */ count) => {
    signal.throwIfAborted();
    const commands = encode(count).finish();
    const begin = performance.now();
    device.queue.submit([commands]);
    await device.queue.onSubmittedWorkDone();
    return performance.now() - begin;
  };
  const least = async (/** @type {number} */ count) => {
    let found = Infinity;
    for (let i = 0; i < TRIES; i++) found = Math.min(found, await timed(count));
    return found;
  };
  await timed(1);
  const one = await least(1);
  for (let count = 2; count <= MOST_DISPATCHES; count *= 2) {
    if (await timed(count) - one < LEAST_MS && count < MOST_DISPATCHES) continue;
    const difference = await least(count) - one; // another program may have delayed the first of them
    if (difference >= LEAST_MS / 2 || (count === MOST_DISPATCHES && difference > 0)) return difference / (count - 1);
  }
  throw new Error(`${MOST_DISPATCHES} dispatches took no longer than one by this page's clock.`);
}

/**
 * Return the milliseconds from writing four bytes until the result of a dispatch on them is read back.
 * @param {GPUDevice} device
 * @param {AbortSignal} signal
 */
async function readbacks(device, signal) {
  const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const value = device.createBuffer({ size: 16, usage: STORAGE | COPY_SRC | COPY_DST });
  const staging = device.createBuffer({ size: 16, usage: MAP_READ | COPY_DST });
  const made = await kernel(device, COUNT, [value]);
  const times = [];
  for (let i = 0; i < READBACKS; i++) {
    signal.throwIfAborted();
    const begin = performance.now();
    device.queue.writeBuffer(value, 0, new Uint32Array([i]));
    const encoder = encoded(device, made, 1, 1);
    encoder.copyBufferToBuffer(value, 0, staging, 0, 16);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    const [read] = new Uint32Array(staging.getMappedRange());
    staging.unmap();
    times.push(performance.now() - begin);
    if (read !== i + 1) throw new Error(`The GPU computed ${i} + 1 and gave ${read}.`);
  }
  return times.slice(1);
}

/**
 * @param {GPUAdapter} adapter
 * @param {boolean} isSoftware
 * @param {AbortSignal} signal
 * @returns {Promise<{bandwidth_gb_per_s: number, bandwidth_bytes: number, dispatch_us: number, readback_ms: number, readback_p90_ms: number}>}
 */
export async function deviceRates(adapter, isSoftware, signal) {
  const { maxStorageBufferBindingSize, maxBufferSize } = adapter.limits;
  const device = await adapter.requestDevice({ requiredLimits: { maxStorageBufferBindingSize, maxBufferSize } });
  try {
    const size = Math.min(isSoftware ? SOFTWARE_STREAM_BYTES : STREAM_BYTES, maxStorageBufferBindingSize, maxBufferSize);
    const usage = GPUBufferUsage.STORAGE;
    const copy = await kernel(device, COPY, [device.createBuffer({ size, usage }), device.createBuffer({ size, usage })]);
    const groups = Math.ceil(size / 16 / 256);
    const rows = Math.ceil(groups / 32768);
    const moved = await slope(device, (count) => encoded(device, copy, count, Math.ceil(groups / rows), rows), signal);
    const step = await kernel(device, COUNT, [device.createBuffer({ size: 16, usage })]);
    const begun = await slope(device, (count) => encoded(device, step, count, 1), signal);
    const trips = await readbacks(device, signal);
    return {
      bandwidth_gb_per_s: rounded(2 * size / moved / 1e6), bandwidth_bytes: size, dispatch_us: rounded(begun * 1000),
      readback_ms: rounded(quantile(trips, 0.5)), readback_p90_ms: rounded(quantile(trips, 0.9)),
    };
  } finally {
    device.destroy();
  }
}
