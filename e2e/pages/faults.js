// WebGPU calls that fail on purpose: `injectFault(name)` replaces a method until `restoreFaults()`, `injectFault(name, 1)`
// fails once.
const refuse = () => { throw new DOMException('injected'); };
const reject = () => Promise.reject(new DOMException('injected'));

async function outOfMemory() {
  await real(GPUDevice, 'popErrorScope').call(this);
  return new GPUOutOfMemoryError('injected');
}

async function invalid() {
  await real(GPUDevice, 'popErrorScope').call(this);
  return new GPUValidationError('injected');
}

// A real error of the GPU process that no awaited promise reports: WebGPU refuses the write, and the buffer keeps its contents.
function nowhere(buffer, offset, ...data) {
  return real(GPUQueue, 'writeBuffer').call(this, buffer, buffer.size, ...data);
}

const faults = self.GPUDevice ? {
  'map rejects': [GPUBuffer, 'mapAsync', reject],
  'mapped range throws': [GPUBuffer, 'getMappedRange', refuse],
  'no bind group': [GPUDevice, 'createBindGroup', refuse],
  'no encoder': [GPUDevice, 'createCommandEncoder', refuse],
  'no pipeline': [GPUDevice, 'createComputePipelineAsync', reject],
  'no module': [GPUDevice, 'createShaderModule', refuse],
  'no layout': [GPUDevice, 'createBindGroupLayout', refuse],
  'no buffer': [GPUDevice, 'createBuffer', refuse],
  'out of memory': [GPUDevice, 'popErrorScope', outOfMemory],
  'not valid': [GPUDevice, 'popErrorScope', invalid],
  'scope rejects': [GPUDevice, 'popErrorScope', reject],
  'write goes nowhere': [GPUQueue, 'writeBuffer', nowhere],
  'queue takes no bytes': [GPUQueue, 'writeBuffer', refuse],
  'queue takes no commands': [GPUQueue, 'submit', refuse],
  'no pass': [GPUCommandEncoder, 'beginComputePass', refuse],
  'pass takes no dispatch': [GPUComputePassEncoder, 'dispatchWorkgroups', refuse],
  'no copy': [GPUCommandEncoder, 'copyBufferToBuffer', refuse],
} : {};

const originals = new Map();

function real(type, method) {
  return originals.get(type.name + method) ?? type.prototype[method];
}

globalThis.faultNames = Object.keys(faults).filter((name) => name !== 'write goes nowhere');

globalThis.injectFault = (name, times = Infinity) => {
  const [type, method, replacement] = faults[name];
  const original = type.prototype[method];
  originals.set(type.name + method, original);
  let left = times;
  type.prototype[method] = function faulty(...args) {
    left -= 1;
    return (left >= 0 ? replacement : original).apply(this, args);
  };
};

globalThis.restoreFaults = () => {
  for (const [type, method] of Object.values(faults)) type.prototype[method] = real(type, method);
  originals.clear();
};
