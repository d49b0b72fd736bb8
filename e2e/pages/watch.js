// Counts what a page or worker has on the GPU, from outside of pyruntime: `gpuBytes()` is what was created and not
// destroyed, by label, `gpuPeak` the most of it there was at a time.
const live = new Map();

/** Devices in the order in which they were opened. */
globalThis.gpuDevices = [];

/** Submits of this realm that have commands, and how many of them WebAssembly had no part in. */
globalThis.submits = { all: 0, withoutPython: 0 };

/** The newest device is lost with this one of the submits to come; 0: with none. */
globalThis.lostWithSubmit = 0;

/** Calls of this realm that make something on the GPU. */
globalThis.created = { buffers: 0, groups: 0, pipelines: 0 };

/** Those of `created.buffers` that web/gpu/staging.js keeps, for five seconds after they were last used. */
globalThis.stagingMade = 0;

/** What `gpuBytes()` was when it was the most. */
globalThis.gpuPeak = {};

/** Buffers of this realm that were mapped to be read. */
globalThis.readbacks = 0;

if (globalThis.GPUDevice) {
  const { requestDevice } = GPUAdapter.prototype;
  const { submit } = GPUQueue.prototype;
  GPUAdapter.prototype.requestDevice = async function noted(...descriptor) {
    const device = await requestDevice.apply(this, descriptor);
    gpuDevices.push(device);
    return device;
  };
  GPUQueue.prototype.submit = function counted(commands) {
    if (!commands.length) return submit.call(this, commands); // who waits asks with these
    submits.all += 1;
    if (lostWithSubmit && !(lostWithSubmit -= 1)) gpuDevices.at(-1).destroy();
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 100;
    if (!new Error().stack.includes('wasm')) submits.withoutPython += 1;
    Error.stackTraceLimit = stackTraceLimit;
    return submit.call(this, commands);
  };
  const { createBuffer, destroy: destroyDevice } = GPUDevice.prototype;
  const { destroy } = GPUBuffer.prototype;
  GPUDevice.prototype.createBuffer = function counted(descriptor) {
    created.buffers += 1;
    if (descriptor.label === 'staging') stagingMade += 1;
    const buffer = createBuffer.call(this, descriptor);
    live.set(buffer, this);
    const total = (bytes) => Object.values(bytes).reduce((sum, size) => sum + size, 0);
    if (total(gpuBytes()) > total(gpuPeak)) gpuPeak = gpuBytes();
    return buffer;
  };
  for (const [kind, method] of [['groups', 'createBindGroup'], ['pipelines', 'createComputePipelineAsync']]) {
    const create = GPUDevice.prototype[method];
    GPUDevice.prototype[method] = function counted(...descriptor) {
      created[kind] += 1;
      return create.apply(this, descriptor);
    };
  }
  const { mapAsync } = GPUBuffer.prototype;
  GPUBuffer.prototype.mapAsync = function counted(mode, ...range) {
    if (mode === GPUMapMode.READ) readbacks += 1;
    return mapAsync.call(this, mode, ...range);
  };
  GPUBuffer.prototype.destroy = function counted() {
    live.delete(this);
    return destroy.call(this);
  };
  GPUDevice.prototype.destroy = function counted() {
    for (const [buffer, device] of live) if (device === this) live.delete(buffer);
    return destroyDevice.call(this);
  };
}

globalThis.gpuBytes = () => {
  const bytes = {};
  for (const { label, size } of live.keys()) bytes[label] = (bytes[label] ?? 0) + size;
  return bytes;
};
