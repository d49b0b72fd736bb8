// @ts-check
/**
 * Create what a recording consists of: layouts, pipelines, bind groups, commands. Plan files create each with a call. Python
 * sends all commands of a recording as one text (`pyruntime/device/webgpu/replaying.py`): one call for each command would take
 * longer than creating it.
 */

import { repeat, repeatedOf } from './repeated.js';
import { told } from './staging.js';

/**
 * @typedef {object} Part what a binding is
 * @property {number} slot which of the buffers that each run brings, or -1
 * @property {GPUBuffer} [buffer] the plan's own memory, where it is no slot
 * @property {number} offset
 * @property {number} size
 *
 * @typedef {object} Command
 * @property {GPUComputePipeline} pipeline undefined until it is compiled
 * @property {GPUBindGroup} group
 * @property {[number, number, number]} grid
 * @property {number[]} scaled for each direction of the grid which of a run's numbers it is, or -1; or empty
 * @property {number} work about how many operations it takes
 *
 * @typedef {object} Open a command that binds what runs bring
 * @property {GPUComputePipeline} pipeline
 * @property {GPUBindGroupLayout} layout
 * @property {Part[]} entries
 * @property {[number, number, number]} grid
 * @property {number[]} scaled
 * @property {number} work
 *
 * @typedef {[pipeline: number, grid: [number, number, number], scaled: number[], parts: number[], flops: number]} Row a command
 *   as Python writes it: number of its pipeline, and of each part the number of its buffer (-1 and less: slots 0 and more),
 *   offset and size
 *
 * @typedef {{group: GPUBindGroupLayout, pipeline: GPUPipelineLayout}} Layout of what a shader binds
 *
 * @typedef {object} Begun a pipeline that is compiling
 * @property {GPUShaderModule} module which knows why it failed
 * @property {Promise<GPUComputePipeline>} pipeline
 * @property {string} code
 * @property {GPUBindGroupLayout} group
 */

/** Estimated cost of one byte of memory traffic, in floating-point operations. */
const WORK_OF_A_BYTE = 4;

const COMMENT = /\/\/.*|\/\*[^]*?\*\//g;
const BINDING = /@binding\(\s*(\d+)u?\s*\)[^;]*?\bvar\s*<\s*(storage|uniform)\b\s*(?:,\s*(\w+))?/g;

/** By what is bound. @type {WeakMap<GPUDevice, Map<string, Layout>>} */
const layouts = new WeakMap();
/** @type {WeakMap<GPUComputePipeline, GPUBindGroupLayout>} */
const groups = new WeakMap();

/**
 * The types of what a shader binds: as it declares them, since a layout that says otherwise is refused.
 * @param {string} code
 * @returns {[binding: number, type: GPUBufferBindingType][]}
 */
function bound(code) {
  return [...code.replace(COMMENT, ' ').matchAll(BINDING)].map(([, binding, space, access]) => (
    [Number(binding), space === 'uniform' ? space : access === 'read_write' ? 'storage' : 'read-only-storage']));
}

/**
 * Bind group and pipeline layout for what a shader binds.
 * @param {GPUDevice} device
 * @param {string} code
 * @returns {Layout}
 */
function layoutOf(device, code) {
  const known = layouts.get(device) ?? new Map();
  layouts.set(device, known);
  const types = bound(code);
  const key = types.join();
  if (!known.has(key)) {
    const entries = types.map(([binding, type]) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } }));
    const group = device.createBindGroupLayout({ entries });
    known.set(key, { group, pipeline: device.createPipelineLayout({ bindGroupLayouts: [group] }) });
  }
  return known.get(key);
}

/**
 * @param {GPUDevice} device
 * @param {string} code
 * @param {string} [entryPoint]
 * @returns {Begun}
 */
export function compile(device, code, entryPoint = 'main') {
  device.pushErrorScope('validation'); // the pipeline reports errors of module or layout
  let module;
  let made;
  try {
    made = layoutOf(device, code);
    module = device.createShaderModule({ code });
  } finally {
    device.popErrorScope().catch(() => {});
  }
  const { group, pipeline: layout } = made;
  const pipeline = device.createComputePipelineAsync({ layout, compute: { module, entryPoint } }).then((ready) => {
    groups.set(ready, group);
    return ready;
  });
  pipeline.catch(() => {}); // the caller that awaits it reports the error
  return { module, pipeline, code, group };
}

/**
 * `other` stands for a pipeline that was compiled, in commands (`fallback.js`).
 * @param {object} other
 * @param {GPUComputePipeline} pipeline
 */
export function standIn(other, pipeline) {
  const standing = /** @type {GPUComputePipeline} */ (other);
  groups.set(standing, /** @type {GPUBindGroupLayout} */ (groups.get(pipeline)));
  return standing;
}

/**
 * @param {GPUDevice} device
 * @param {GPUBindGroupLayout} layout
 * @param {{buffer?: GPUBuffer, offset: number, size: number}[]} parts
 */
function groupOf(device, layout, parts) {
  const entries = parts.map(({ buffer, offset, size }, binding) => (
    { binding, resource: { buffer: /** @type {GPUBuffer} */ (buffer), offset, size } }));
  return device.createBindGroup({ layout, entries });
}

/**
 * A command: with its bind group, or with a function that makes one where there are slots. Its pipeline may be compiling: a run waits
 * for that.
 * @param {GPUDevice} device
 * @param {GPUComputePipeline | Begun} pipeline
 * @param {Part[]} parts in the order of their bindings
 * @param {[number, number, number]} grid
 * @param {number[]} scaled
 * @param {number} flops
 * @returns {Command | Open}
 */
export function commandOf(device, pipeline, parts, grid, scaled, flops) {
  const work = parts.reduce((sum, { size }) => sum + WORK_OF_A_BYTE * size, flops);
  const begun = 'module' in pipeline ? pipeline : null; // a `FallbackPipeline` has none
  const ready = /** @type {GPUComputePipeline} */ (begun ? undefined : pipeline);
  const layout = /** @type {GPUBindGroupLayout} */ (begun ? begun.group : groups.get(ready)); // all pipelines are from `compile`
  /** @type {Command | Open} */
  const command = parts.some(({ slot }) => slot >= 0)
    ? { pipeline: ready, layout, entries: parts, grid, scaled, work }
    : { pipeline: ready, group: groupOf(device, layout, parts), grid, scaled, work };
  begun?.pipeline.then((made) => { command.pipeline = made; }, () => {});
  return command;
}

/**
 * Decode the commands of a recording, which Python sends as JSON.
 * @param {GPUDevice} device
 * @param {string} text JSON: `rows`, in which `order` they come where some come several times, and which are `repeated`
 * @param {(GPUComputePipeline | Begun)[]} pipelines
 * @param {GPUBuffer[]} buffers
 * @returns {(Command | Open)[]}
 */
function commandsOf(device, text, pipelines, buffers) {
  /** @type {{rows: Row[], order: number[] | null, repeated: import('./repeated.js').Repeated[]}} */
  const { rows, order, repeated } = JSON.parse(text);
  const commands = rows.map(([pipeline, grid, scaled, numbers, flops]) => {
    /** @type {Part[]} */
    const parts = [];
    for (let i = 0; i < numbers.length; i += 3) {
      const [number, offset, size] = [numbers[i], numbers[i + 1], numbers[i + 2]];
      parts.push(number < 0 ? { slot: -1 - number, offset, size } : { slot: -1, buffer: buffers[number], offset, size });
    }
    return commandOf(device, pipelines[pipeline], parts, grid, scaled, flops);
  });
  return repeat(order ? order.map((i) => commands[i]) : commands, repeated);
}

/**
 * `commandsOf`, and what the GPU says to their bind groups: '' where it takes them.
 * @param {GPUDevice} device
 * @param {string} text
 * @param {(GPUComputePipeline | Begun)[]} pipelines
 * @param {GPUBuffer[]} buffers
 */
export function record(device, text, pipelines, buffers) {
  return checked(device, () => commandsOf(device, text, pipelines, buffers));
}

/** @template T @param {GPUDevice} device @param {() => T} make commands */
function checked(device, make) {
  device.pushErrorScope('validation');
  let commands;
  let scope;
  try {
    commands = make();
  } finally {
    scope = device.popErrorScope();
    scope.catch(() => {});
  }
  const refused = scope.then(told);
  refused.catch(() => {}); // reported by the run
  return { commands, refused };
}

/**
 * Commands with what a run brings in their slots.
 * @param {GPUDevice} device
 * @param {(Command | Open)[]} commands
 * @param {(slot: number) => GPUBuffer} bufferOf
 * @returns {Command[]}
 */
export function filled(device, commands, bufferOf) {
  const made = commands.map((command) => {
    if ('group' in command) return command;
    const { pipeline, layout, entries, grid, scaled, work } = command;
    const parts = entries.map((part) => {
      if (part.slot < 0) return part;
      const buffer = bufferOf(part.slot);
      return { ...part, buffer, size: Math.min(part.size, buffer.size - part.offset) };
    });
    return { pipeline, group: groupOf(device, layout, parts), grid, scaled, work };
  });
  return repeat(made, repeatedOf(commands));
}

/**
 * A recording with these buffers in its slots, and what the GPU says to their bind groups: '' where it takes them.
 * @param {GPUDevice} device
 * @param {(Command | Open)[]} commands
 * @param {GPUBuffer[]} buffers by slot
 */
export function bind(device, commands, buffers) {
  return checked(device, () => filled(device, commands, (slot) => buffers[slot]));
}

/**
 * A run for web/gpu/replay.js, as Python has written it down.
 * @param {GPUDevice} device
 * @param {(Command | Open)[]} commands
 * @param {string} text JSON: a `Replay` without the former, with numbers of buffers in their place
 * @param {GPUBuffer[]} buffers
 * @param {Uint8Array | null} params of the plan, where it leaves sizes open
 * @returns {import('./replay.js').Replay}
 */
export function described(device, commands, text, buffers, params) {
  const seen = JSON.parse(text);
  for (const places of [seen.uploads, seen.downloads, seen.numbers]) {
    for (const place of places) place.buffer = buffers[place.buffer];
  }
  if (seen.sizes) Object.assign(seen.sizes, { params, buffer: seen.sizes.buffer === null ? null : buffers[seen.sizes.buffer] });
  return { ...seen, device, commands, live: true };
}
