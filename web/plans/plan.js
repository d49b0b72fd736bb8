// @ts-check
/**
 * Read and validate plan files (`pyruntime/compiler/saved.py` has the format). A file may come from anywhere: every length, number,
 * offset and name is checked before anything is allocated.
 */

import { check, checkBound, checkDecoder, checkExpression, checkIntegers, checkOpen, checkScaled, checkType, refuse, Refused } from './checks.js';
import { checkStaying } from './resident.js';
import { sizeOf } from '../api/elements.js';
import { reading } from '../net/reading.js';

export { Refused };

/** @typedef {[space: number, index: number, offset: number, nbytes: number]} Region */
/**
 * @typedef {object} Transfer
 * @property {string} name
 * @property {string} type
 * @property {number} bits
 * @property {number[]} dims
 * @property {Region} region
 * @property {number} most
 * @property {number[]} scaled
 *
 * @typedef {object} SavedCommand
 * @property {number} shader
 * @property {Region[]} regions
 * @property {[number, number] | null} params
 * @property {[number, number, number]} grid
 * @property {number[]} scaled
 * @property {[kernel: string, node: number, flops: number]} about
 *
 * @typedef {object} SavedPlan
 * @property {number[]} shaders
 * @property {[constant: number, type: string, dims: number[]][]} constants
 * @property {number[]} arenas
 * @property {[offset: number, nbytes: number]} params
 * @property {Transfer[]} uploads
 * @property {Omit<Transfer, 'bits' | 'region' | 'most'>[]} unread
 * @property {import('../gpu/bounds.js').Bound[]} bounds
 * @property {Transfer[]} downloads
 * @property {Transfer[]} external
 * @property {import('./resident.js').SavedKept[]} kept
 * @property {{transfer: Transfer, elements: number[], expressions: number[]}[]} numbers
 * @property {SavedCommand[]} commands
 * @property {import('../gpu/repeated.js').Repeated[]} repeated
 * @property {import('../gpu/sizes.js').Expression[]} expressions
 * @property {[number, 'u32' | 'i32' | 'f32', number][]} patches
 * @property {[name: string, op_type: string, domain: string, placement: 'gpu' | 'host' | 'none', reason: string, kernels: string[]][]} nodes
 * @property {[peak: number, lowerBound: number, withoutReuse: number, weights: number, steps: number]} memory
 *
 * @typedef {object} Program
 * @property {SavedPlan} plan
 * @property {Pick<import('../gpu/sizes.js').Sizes, 'ranges' | 'grows' | 'values' | 'guards' | 'waste'> | null} sizes
 * @property {Record<string, number>} computed
 * @property {string[]} inputs tensors on the GPU that runs bring
 * @property {string[]} outputs that stay there, in memory that each run brings
 * @property {Record<string, [offset: number, nbytes: number]>} values of inputs that it is for, and no other
 * @property {string[]} scalars inputs of shape [] that runs may bring in shape [1] instead, all of them
 *
 * @typedef {{path: string, nbytes: number, hash: string}} ExternalFile
 * @typedef {[file: number, offset: number, nbytes: number, buffer: number, place: number]} SavedConstant
 *
 * @typedef {object} Saved
 * @property {string} package
 * @property {{nbytes: number, hash: string, inside: boolean}} model
 * @property {ExternalFile[]} files that the model keeps weights in
 * @property {{limits: Record<string, number>, features: string[], vendor: string}} target
 * @property {Record<string, unknown>} options
 * @property {import('../pyruntime.js').ValueMetadata[]} inputs
 * @property {import('../pyruntime.js').ValueMetadata[]} outputs
 * @property {import('../text/local.js').DecoderFacts | null} decoder facts for text generation; null where none were requested
 * @property {Program[]} programs
 * @property {SavedPlan[]} computed
 * @property {string[]} shaders
 * @property {[nbytes: number, kept: number][]} buffers
 * @property {SavedConstant[]} constants
 * @property {import('./wasm_checks.js').WasmModule} [module] of plans for WebAssembly
 */

const FORMAT = 10;
const HEAD = 56;
const MOST_HEADER = 64 << 20;

/** Size in bytes of the buffer that a region lies in. @param {any} header @param {any} plan @param {any} region */
function bytesAround(header, plan, [space, index]) {
  if (space === 0) return plan.arenas[index];
  if (space === 1) return Math.ceil(header.constants[plan.constants[index]?.[0]]?.[2] / 256 || 1) * 256;
  return Math.max(...plan.external.filter((/** @type {any} */ t) => t.region[1] === index).map(
    (/** @type {any} */ t) => t.region[3]));
}

/** @param {any} header @param {any} plan @param {any} region */
function checkRegion(header, plan, region) {
  check.list(region, 'a region', (n) => check.integer(n, Number.MAX_SAFE_INTEGER, 'a region'), 4);
  const [space, , offset, nbytes] = region;
  const most = region.length === 4 && space <= 2 ? bytesAround(header, plan, region) : NaN;
  if (!(offset + nbytes <= most) || offset % 256) refuse('it is damaged: a region outside its memory');
}

/** @param {any} header @param {any} plan @param {any} transfer */
function checkTransfer(header, plan, transfer) {
  check.object(transfer, 'a tensor');
  const { name, bits, dims, region, scaled } = transfer;
  check.text(name, 'a name');
  checkType(transfer);
  check.list(dims, 'a shape', (d) => check.integer(d, 2 ** 40, 'a dimension'), 64);
  checkScaled(scaled, plan, dims.length);
  checkRegion(header, plan, region);
  const size = dims.reduce((/** @type {number} */ product, /** @type {number} */ d) => product * d, bits / 8);
  if (!(Math.ceil(size) <= region[3])) refuse(`it is damaged: '${name}' is larger than its memory`);
}

/** Workgroups that may be in excess: those of a grid's last row. */
const SURPLUS = 65535;

/** Return the most workgroups that a command may have: one for each byte that it binds. @param {Region[]} regions */
export function mostWorkgroups(regions) {
  return regions.reduce((sum, [, , , nbytes]) => sum + nbytes, SURPLUS);
}

/** @param {any} header @param {any} plan @param {any} command @param {number} workgroups */
function checkCommand(header, plan, { shader, regions, params, grid, scaled, about }, workgroups) {
  check.integer(about?.[2], Number.MAX_SAFE_INTEGER, 'operations');
  check.integer(shader, plan.shaders.length - 1, 'a shader');
  check.list(regions, 'bindings', (region) => checkRegion(header, plan, region), 64);
  if (params) {
    check.list(params, 'parameters', (n) => check.integer(n, plan.params[1], 'parameters'), 2);
    if (!(params[0] + params[1] <= plan.params[1]) || params[0] % 256) refuse('it is damaged: parameters');
  }
  check.list(grid, 'a grid', (n) => check.integer(n, workgroups, 'a grid'), 3);
  if (grid.length !== 3 || !(sizeOf(grid) <= mostWorkgroups(regions))) refuse('it is damaged: a grid');
  checkScaled(scaled, plan, 3);
}

/** @param {any} header @param {any} plan @param {number} sizes @param {number} sections @param {GPUSupportedLimits} limits */
function checkPlan(header, plan, sizes, sections, limits) {
  check.object(plan, 'a plan');
  check.list(plan.shaders, 'shaders', (n) => check.integer(n, header.shaders.length - 1, 'a shader'));
  check.list(plan.constants, 'constants', (c) => check.integer(c?.[0], header.constants.length - 1, 'a constant'));
  check.list(plan.arenas, 'arenas', (n) => check.integer(n, limits.maxBufferSize, 'an arena'), 64);
  check.list(plan.params, 'parameters', (n) => check.integer(n, sections, 'parameters'), 2);
  if (!(plan.params[0] + plan.params[1] <= sections)) refuse('it is damaged: parameters');
  check.list(plan.expressions, 'expressions', (e) => checkExpression(e, sizes));
  check.list(plan.external, 'tensors', ({ region }) => {
    check.list(region, 'a region', (n) => check.integer(n, limits.maxBufferSize, 'a region'), 4);
    if (region[0] !== 2 || region[2]) refuse('it is damaged: a tensor that stays');
  }, 1 << 16);
  for (const key of ['external', 'uploads', 'downloads']) {
    check.list(plan[key], key, (t) => checkTransfer(header, plan, t), 1 << 16);
  }
  check.list(plan.unread, 'inputs', ({ name, type, dims, scaled }) => {
    check.text(name, 'a name');
    check.text(type, 'a type');
    check.list(dims, 'a shape', (d) => check.integer(d, 2 ** 40, 'a dimension'), 64);
    checkScaled(scaled, plan, dims.length);
  }, 1 << 16);
  check.list(plan.bounds, 'bounds', (bound) => checkBound(bound, plan), 1 << 16);
  check.list(plan.numbers, 'numbers', ({ transfer, elements, expressions }) => {
    checkTransfer(header, plan, transfer);
    check.list(elements, 'elements', (n) => check.integer(n, 2 ** 53, 'an element', -(2 ** 53)));
    checkScaled(expressions, plan, elements.length);
    if (!/^u?int/.test(transfer.type) || transfer.bits < 8) refuse('it is damaged: the type of elements');
    if (expressions.length !== elements.length || elements.length * transfer.bits / 8 > transfer.region[3]) {
      refuse('it is damaged: elements');
    }
  });
  check.list(plan.commands, 'commands', (c) => checkCommand(header, plan, c, limits.maxComputeWorkgroupsPerDimension));
  checkRepeated(plan);
  check.list(plan.patches, 'patches', (patch) => {
    check.integer(patch?.[0], plan.params[1] - 4, 'a patch');
    check.integer(patch[2], plan.expressions.length - 1, 'a patch');
    if (!['u32', 'i32', 'f32'].includes(patch[1])) refuse('it is damaged: a patch');
  });
}

/** Validate loops: they lie one within the other, or one after the other. @param {any} plan */
function checkRepeated({ repeated, commands, expressions }) {
  /** Loops around: the end of each, and how often it runs in all. */
  const around = [{ end: commands.length, trips: 1 }];
  let before = 0;
  check.list(repeated, 'loops', (loop) => {
    check.list(loop, 'a loop', (n) => check.integer(n, 2 ** 20, 'a loop', -1), 4);
    const [first, count, times, scaled] = loop;
    while (around.length > 1 && first >= around[around.length - 1].end) around.pop();
    const { end, trips } = around[around.length - 1];
    const fits = first >= before && count > 0 && first + count <= end && times >= 0 && times * trips * count <= 2 ** 20;
    if (loop.length !== 4 || !fits || scaled >= expressions.length) refuse('it is damaged: a loop');
    around.push({ end: first + count, trips: times * trips });
    before = first;
  });
}

/** Validate the description of a plan. @param {any} plan */
function checkReport({ nodes, memory }) {
  check.list(nodes, 'nodes', (node) => {
    if (!Array.isArray(node) || node.length !== 6 || !['gpu', 'host', 'none'].includes(node[3])) refuse('it is damaged: a node');
    for (const text of node.slice(0, 5)) check.text(text, 'a node');
    check.list(node[5], 'kernels', (name) => check.text(name, 'a kernel'));
  });
  check.list(memory, 'memory', (n) => check.integer(n, Number.MAX_SAFE_INTEGER, 'memory'), 5);
  if (memory.length !== 5) refuse('it is damaged: memory');
}

/** @param {any} header @param {any} program */
function checkSizes(header, { plan, sizes, computed }) {
  check.object(computed, 'computed constants');
  for (const [name, number] of Object.entries(computed)) {
    check.integer(number, header.computed.length - 1, `'${name}'`);
    const wanted = plan.external.find((/** @type {any} */ t) => t.name === name)?.region[3];
    if (wanted === undefined || wanted > header.computed[number].external[0].region[3]) refuse(`it is damaged: '${name}'`);
  }
  if (sizes === null) {
    if (plan.expressions.length || plan.patches.length) refuse('it is damaged: expressions of nothing');
    return;
  }
  check.list(sizes.ranges, 'ranges', (range) => {
    check.list(range, 'a range', (n) => check.integer(n, 2 ** 40, 'a range'), 2);
    if (!(range[0] <= range[1])) refuse('it is damaged: a range');
  }, 256);
  check.list(sizes.grows, 'sizes', (grows) => check.flag(grows, 'sizes'), sizes.ranges.length);
  if (sizes.grows.length !== sizes.ranges.length) refuse('it is damaged: sizes');
  check.list(sizes.guards, 'guards', (guard) => {
    if (!Array.isArray(guard) || !['<', '=='].includes(guard[1])) refuse('it is damaged: a guard');
    check.flag(guard[2], 'a guard');
    checkExpression(guard[0], sizes.ranges.length);
  });
  check.object(sizes.values, 'sizes');
  for (const [name, number] of Object.entries(sizes.values)) {
    check.integer(number, sizes.ranges.length - 1, 'the number of a size');
    checkIntegers(plan, name);
  }
  if (typeof sizes.waste !== 'number') refuse('it is damaged: sizes');
  for (const { scaled } of [...plan.uploads, ...plan.unread]) checkOpen(plan, scaled);
}

/** Whether it is a relative path that does not leave its folder. @param {string} path */
function isWithinFolder(path) {
  return path !== '' && !/^\/|\\|\0|^[A-Za-z][A-Za-z0-9+.-]*:/.test(path) && !path.split('/').includes('..');
}

/** @param {any} header @param {number} sections @param {GPUSupportedLimits} limits */
function checkHeader(header, sections, limits) {
  check.object(header, 'its header');
  check.object(header.model, 'the model');
  check.flag(header.model.inside, 'the model');
  check.list(header.target.features, 'features', (feature) => check.text(feature, 'a feature'), 256);
  check.text(header.target.vendor, 'a vendor');
  check.integer(header.model.nbytes, Number.MAX_SAFE_INTEGER, 'the size of the model');
  check.text(header.model.hash, 'the hash of the model');
  check.list(header.files, 'files', (file) => {
    check.object(file, 'a file');
    check.text(file.path, 'the path of a file');
    if (!isWithinFolder(file.path)) refuse('it is damaged: a file outside the folder of the model');
    check.integer(file.nbytes, Number.MAX_SAFE_INTEGER, 'the size of a file');
    check.text(file.hash, 'the hash of a file');
  }, 1 << 12);
  const sizes = [sections, header.model.nbytes, ...header.files.map((/** @type {any} */ file) => file.nbytes)];
  check.list(header.shaders, 'shaders', (text) => check.text(text, 'a shader'));
  check.list(header.buffers, 'buffers', (buffer) => {
    check.integer(buffer?.[0], limits.maxBufferSize, 'a buffer');
    check.integer(buffer[1], 1, 'a buffer');
  }, 1 << 16);
  check.list(header.constants, 'constants', (constant) => {
    check.list(constant, 'a constant', (n) => check.integer(n, Number.MAX_SAFE_INTEGER, 'a constant'), 5);
    const [number, at, nbytes, buffer, place] = constant;
    if (number && header.model.inside) refuse('it is damaged: a constant in a file that is not read');
    if (!(at + nbytes <= sizes[number]) || place % 256 || !(place + nbytes <= header.buffers[buffer]?.[0])) {
      refuse('it is damaged: a constant outside its file or buffer');
    }
  });
  const needed = header.constants.reduce((/** @type {number} */ sum, /** @type {any} */ c) => sum + c[2] + 256, 0);
  if (header.buffers.reduce((/** @type {number} */ sum, /** @type {any} */ b) => sum + b[0], 0) > needed) {
    refuse('it is damaged: buffers larger than their constants');
  }
  for (const kind of ['inputs', 'outputs']) {
    check.list(header[kind], kind, (value) => {
      check.text(value?.name, 'a name');
      check.text(value.type, 'a type');
      if (value.isTensor !== undefined) check.flag(value.isTensor, 'a value');
      check.list(value.shape, 'a shape', (d) => typeof d === 'string' || check.integer(d, 2 ** 40, 'a dimension'), 64);
    }, 1 << 16);
  }
  checkDecoder(header.decoder);
  check.list(header.computed, 'computed constants', (plan) => {
    checkPlan(header, plan, 0, sections, limits);
    const { external, uploads, downloads, numbers } = plan;
    const others = [uploads, plan.unread, plan.bounds, downloads, numbers, plan.kept];
    if (external.length !== 1 || others.some((some) => some?.length !== 0)) refuse('it is damaged: a computed constant');
  }, 1 << 16);
  if (!header.programs?.length) refuse('it has no program');
  check.list(header.programs, 'programs', (program) => {
    check.object(program, 'a program');
    checkPlan(header, program.plan, program.sizes?.ranges?.length ?? 0, sections, limits);
    checkSizes(header, program);
    checkStaying(header, program, sections);
    checkReport(program.plan);
  }, 64);
}

/** @param {Uint8Array<ArrayBuffer>} packed @param {number} size */
async function inflate(packed, size) {
  const { writable, readable } = new DecompressionStream('deflate');
  const writer = writable.getWriter();
  writer.write(packed).catch(() => {}); // the reader gets the error
  writer.close().catch(() => {});
  const reader = reading(readable.getReader());
  const bytes = new Uint8Array(size);
  let at = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > size) {
      await reader.cancel();
      refuse('it is damaged: its header is longer than it says');
    }
    bytes.set(value, at);
    at += value.length;
  }
  return new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(0, at));
}

/**
 * What targets call the matrices that subgroups of a device multiply (`matrix_unit_of` of pyruntime/target/target.py).
 *
 * @param {{subgroupMatrixConfigs?: {componentType: string, resultComponentType: string, M: number, N: number, K: number}[]}} info
 */
function matrixUnits({ subgroupMatrixConfigs = [] }) {
  const language = navigator.gpu?.wgslLanguageFeatures;
  if (!language?.has('buffer_view') || !language.has('subgroup_id')) return new Set();
  const summed = subgroupMatrixConfigs.filter((c) => c.componentType === 'f16' && c.resultComponentType === 'f32');
  return new Set(summed.map(({ M, N, K }) => `subgroup_matrix_${M}x${N}x${K}`));
}

/** A device's limits by their names in plans. */
export const LIMITS = /** @type {const} */ ({
  storage_buffers: 'maxStorageBuffersPerShaderStage', binding_bytes: 'maxStorageBufferBindingSize',
  buffer_bytes: 'maxBufferSize', uniform_bytes: 'maxUniformBufferBindingSize',
  workgroups: 'maxComputeWorkgroupsPerDimension', invocations: 'maxComputeInvocationsPerWorkgroup',
  workgroup_x: 'maxComputeWorkgroupSizeX', workgroup_bytes: 'maxComputeWorkgroupStorageSize' });

/**
 * What a plan needs of the device and has not; null where it can run.
 * @param {Saved} header
 * @param {GPUDevice} device
 * @param {string} vendor of the adapter
 */
function missing({ target }, device, vendor) {
  for (const [name, key] of Object.entries(LIMITS)) {
    const [wanted, there] = [target.limits[name], Number(device.limits[key])];
    if (!(wanted <= there)) return `it is for devices of ${name} ${wanted}, and this one has ${there}`;
  }
  if (device.limits.minStorageBufferOffsetAlignment > 256) return 'this device wants buffers aligned to more than 256 bytes';
  const language = navigator.gpu?.wgslLanguageFeatures;
  const info = /** @type {any} */ (device.adapterInfo ?? {});
  const { subgroupMinSize, subgroupMaxSize, isFallbackAdapter } = info;
  const matrices = matrixUnits(info);
  const lacking = target.features.filter((feature) => (
    feature !== 'timestamp-query' && !device.features.has(feature) && !language?.has(feature) && !matrices.has(feature)
    && !(subgroupMinSize === subgroupMaxSize && feature === `subgroup_size_${subgroupMinSize}`)
    && feature !== (isFallbackAdapter ? 'software_adapter' : 'float16_conversion')));
  if (lacking.length) return `it is for devices with ${lacking.join(', ')}`;
  if (target.vendor && target.vendor !== vendor) return `it is for adapters of '${target.vendor}', and this is of '${vendor}'`;
  return null;
}

/** What a file begins with. @param {ArrayBuffer} file */
const magicOf = (file) => new TextDecoder('latin1').decode(file.slice(0, 8));

/** Whether a plan is for WebAssembly. @param {ArrayBuffer} file */
export const isForWasm = (file) => magicOf(file) === 'pyrtwasm';

/**
 * The plan in a file, for a device, or for WebAssembly.
 * @param {ArrayBuffer} file
 * @param {{version: string, device?: GPUDevice, vendor?: string}} wanted
 * @returns {Promise<{header: Saved, sections: Uint8Array<ArrayBuffer>}>}
 */
export async function readPlan(file, { version, device, vendor = '' }) {
  const view = new DataView(file);
  if (file.byteLength < HEAD || magicOf(file) !== (device ? 'pyrtplan' : 'pyrtwasm')) refuse('it is no plan');
  const [format, packed, inflated, nbytes] = [8, 12, 16, 20].map((at) => view.getUint32(at, true));
  if (format !== FORMAT) refuse(`it has format ${format}, and this version of pyruntime reads ${FORMAT}`);
  if (HEAD + packed + nbytes !== file.byteLength || inflated > MOST_HEADER) refuse('it is cut off');
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new Uint8Array(file, HEAD)));
  if (digest.some((byte, i) => byte !== view.getUint8(24 + i))) refuse('it is damaged: its hash differs');
  try {
    const header = JSON.parse(await inflate(new Uint8Array(file, HEAD, packed), inflated));
    if (header?.package !== version) refuse(`it was compiled by pyruntime ${header?.package}, and this is ${version}`);
    const lacks = device && missing(header, device, vendor);
    if (lacks) refuse(lacks);
    const wasm = device ? null : await import('./wasm_checks.js');
    checkHeader(header, nbytes, /** @type {GPUSupportedLimits} */ (device?.limits ?? wasm?.LIMITS));
    wasm?.checkModule(header, nbytes);
    return { header, sections: new Uint8Array(file, HEAD + packed, nbytes) };
  } catch (error) {
    return error instanceof Refused ? refuse(error.message) : refuse(`it is damaged: ${/** @type {Error} */ (error).message}`);
  }
}
