// @ts-check
/**
 * Counts what a page or a worker asks of the GPU and of WebAssembly, by wrapping prototypes. Imported before the engine.
 *
 * In a worker whose URL names a `channel`, the counts answer on that BroadcastChannel.
 */

export const counts = { live: 0, peak: 0, pipelines: 0, dispatches: 0, submits: 0 };
/** @type {Set<WebAssembly.Memory>} */
const memories = new Set();
/** @type {WeakMap<GPUBuffer, GPUDevice>} */
const owners = new WeakMap();
/** @type {WeakMap<GPUDevice, Set<GPUBuffer>>} */
const held = new WeakMap();
/** What a pass belongs to. @type {WeakMap<GPUComputePassEncoder, GPUCommandEncoder>} */
const encoders = new WeakMap();
/** Dispatches of encoders and of what they make: they count when they are submitted. @type {WeakMap<object, number>} */
const encoded = new WeakMap();

/**
 * @param {any} prototype
 * @param {string} method
 * @param {(self: any, result: any, args: any[]) => void} note
 */
function watch(prototype, method, note) {
  const original = prototype[method];
  prototype[method] = function watched(/** @type {any[]} */ ...args) {
    const result = original.apply(this, args);
    note(this, result, args);
    return result;
  };
}

/** @param {GPUBuffer} buffer */
function forget(buffer) {
  const device = owners.get(buffer);
  if (device && held.get(device)?.delete(buffer)) counts.live -= buffer.size;
}

if (globalThis.GPUDevice) {
  watch(GPUDevice.prototype, 'createBuffer', (device, buffer) => {
    owners.set(buffer, device);
    const buffers = held.get(device) ?? new Set();
    held.set(device, buffers.add(buffer));
    counts.live += buffer.size;
    counts.peak = Math.max(counts.peak, counts.live);
  });
  watch(GPUBuffer.prototype, 'destroy', forget);
  watch(GPUDevice.prototype, 'destroy', (device) => { for (const buffer of held.get(device) ?? []) forget(buffer); });
  for (const method of ['createComputePipeline', 'createComputePipelineAsync']) {
    watch(GPUDevice.prototype, method, () => { counts.pipelines += 1; });
  }
  watch(GPUCommandEncoder.prototype, 'beginComputePass', (encoder, pass) => { encoders.set(pass, encoder); });
  for (const method of ['dispatchWorkgroups', 'dispatchWorkgroupsIndirect']) {
    watch(GPUComputePassEncoder.prototype, method, (pass) => {
      const encoder = encoders.get(pass) ?? pass;
      encoded.set(encoder, (encoded.get(encoder) ?? 0) + 1);
    });
  }
  watch(GPUCommandEncoder.prototype, 'finish', (encoder, made) => { encoded.set(made, encoded.get(encoder) ?? 0); });
  watch(GPUQueue.prototype, 'submit', (queue, _, [passes]) => {
    counts.submits += 1;
    for (const made of passes) counts.dispatches += encoded.get(made) ?? 0;
  });
}

/** @param {any} instance */
function keepMemories(instance) {
  for (const value of Object.values(instance?.exports ?? {})) if (value instanceof WebAssembly.Memory) memories.add(value);
}

WebAssembly.Memory = new Proxy(WebAssembly.Memory, {
  construct(Memory, args, newTarget) {
    const memory = Reflect.construct(Memory, args, newTarget);
    memories.add(memory);
    return memory;
  },
});
for (const method of ['instantiate', 'instantiateStreaming']) {
  watch(WebAssembly, method, (_, promise) => {
    promise.then((/** @type {any} */ result) => keepMemories(result.instance ?? result), () => {});
  });
}

/** The counts so far. WebAssembly memory only grows, so that its bytes are its peak. */
export function snapshot() {
  let wasm = 0;
  for (const memory of memories) wasm += memory.buffer.byteLength;
  const heap = /** @type {any} */ (performance).memory?.usedJSHeapSize ?? null;
  return { ...counts, wasm, heap };
}

const name = new URL(globalThis.location.href).searchParams.get('channel');
if (name && !globalThis.document) {
  const channel = new BroadcastChannel(name);
  channel.addEventListener('message', ({ data }) => {
    if (data.request) channel.postMessage({ answer: data.request, counts: snapshot() });
  });
}
