// Counts what a page or worker has on the GPU, from outside of pyruntime: `gpuBytes()` is what was created and not
// destroyed, by label.
const live = new Map();

if (globalThis.GPUDevice) {
  const { createBuffer, destroy: destroyDevice } = GPUDevice.prototype;
  const { destroy } = GPUBuffer.prototype;
  GPUDevice.prototype.createBuffer = function counted(descriptor) {
    const buffer = createBuffer.call(this, descriptor);
    live.set(buffer, this);
    return buffer;
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
