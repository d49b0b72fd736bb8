// @ts-check
/** Open sessions over plan files or cached plans, without Python. */

import { unlessAborted } from '../api/aborting.js';
import { started } from '../api/client.js';
import { chosenDevice, env, version } from '../api/env.js';
import { inWorker } from '../api/port.js';
import { memoryBytes, OutOfMemory } from '../net/memory.js';
import { isForWasm, LIMITS, readPlan, Refused } from './plan.js';
import { Program } from './program.js';
import { requestAdapter } from '../gpu/adapter.js';
import { StandaloneClient } from './standalone.js';

/** Options that do not say whether a plan fits, and those that are compared with the plan's own. */
const COMPARED = new Set(['plan', 'pyruntime.host_work', 'pyruntime.expects', 'precision', 'float32Nodes', 'pyruntime.precision', 'pyruntime.float32_nodes']);
const FEATURES = ['subgroups', 'shader-f16', 'chromium-experimental-subgroup-matrix'];

/** Execution providers of plans for WebAssembly, as onnxruntime-web and onnxruntime-node name them. */
const WASM_PROVIDERS = ['wasm', 'cpu'];

/** Milliseconds between questions for an adapter, while the browser's GPU process may be starting. */
const PAUSES = [50, 100, 200, 200, 400];

/** @typedef {{device: GPUDevice, vendor: string, adapter: import('../pyruntime.js').AdapterInfo}} Opened */

/** The GPU device that all compiled models share. @type {Promise<Opened> | undefined} */
let opened;

/** @returns {Promise<GPUAdapter>} */
async function findAdapter() {
  for (const pause of [...PAUSES, 0]) {
    const adapter = await requestAdapter();
    if (adapter) return adapter;
    if (!navigator.gpu || !pause) break;
    await new Promise((resolve) => { setTimeout(resolve, pause); });
  }
  throw new Refused('this browser has no adapter');
}

/** @returns {Promise<Opened>} */
async function openDevice() {
  const adapter = await findAdapter();
  const features = /** @type {GPUFeatureName[]} */ (FEATURES.filter((name) => adapter.features.has(name)));
  const requiredLimits = Object.fromEntries(Object.values(LIMITS).map((name) => [name, Number(adapter.limits[name])]));
  const device = await adapter.requestDevice({ requiredLimits, requiredFeatures: features });
  device.lost.then(() => { opened = undefined; });
  const { vendor, architecture, device: name, description } = adapter.info;
  return { device, vendor: vendor.toLowerCase(), adapter: { vendor, architecture, device: name, description } };
}

function device() {
  opened ??= openDevice();
  opened.catch(() => { opened = undefined; });
  return opened;
}

/** @param {any} options */
function staysOnGpu({ preferredOutputLocation }) {
  return Boolean(preferredOutputLocation) && JSON.stringify(preferredOutputLocation).includes('gpu-buffer');
}

/**
 * Why a session with these options needs Python from the start; null where it does not.
 * @param {any} options
 * @param {boolean} same whether the plan was made for these options
 * @param {boolean} [wasm] whether the plan is for WebAssembly
 */
function wantsPython({ executionProviders, preferredOutputLocation, enableProfiling, extra, logId, logSeverityLevel, ...rest }, same, wasm = false) {
  const providers = executionProviders?.map((/** @type {any} */ p) => p?.name ?? p);
  if (executionProviders?.some((/** @type {any} */ p) => p?.device) || chosenDevice()) return 'a GPUDevice is given';
  if (providers?.length && !(wasm ? WASM_PROVIDERS : ['webgpu']).includes(providers[0])) return `the first execution provider is '${providers[0]}'`;
  if (staysOnGpu({ preferredOutputLocation }) && (started()?.sharesBuffers ?? !inWorker())) return 'outputs stay in buffers of the page';
  if (same) return enableProfiling || /pyruntime(?!\.host_work|\.expects|\.kv_cache_bits|\.precision|\.float32_nodes)/.test(JSON.stringify(extra ?? {})) ? 'the runs are profiled' : null;
  if (env.worker === false) return 'Python is to be in this thread, with a device that tensors share';
  const others = Object.keys({ ...rest, ...extra, ...(enableProfiling ? { enableProfiling } : {}) });
  const wanted = others.filter((name) => !COMPARED.has(name));
  return wanted.length ? `the plan is for other options (${wanted.join(', ')})` : null;
}

/** @param {string | Blob | ArrayBuffer} source @param {AbortSignal} [signal] */
async function planBytes(source, signal) {
  if (source instanceof ArrayBuffer) return source;
  if (source instanceof Blob) return source.arrayBuffer();
  const { fetchAll } = await import('../net/stream.js');
  return (await fetchAll(source, { signal })).arrayBuffer();
}

/**
 * @typedef {object} Wanted
 * @property {import('../api/protocol.js').CreateArguments} create
 * @property {(event: import('../pyruntime.js').ProgressEvent) => void} onProgress
 * @property {AbortSignal} [signal]
 * @property {boolean} [onGpu] whether outputs are to stay on the GPU
 * @property {boolean} [compiled] whether the plan was compiled ahead of time
 */

/**
 * The source of an external data file: the one that was given, else the model's folder.
 * @param {string} path
 * @param {import('../api/protocol.js').CreateArguments} create
 */
function sourceOf(path, { model, externalData }) {
  const given = externalData.find((file) => file.path === path);
  if (given) return given.data;
  if (typeof model !== 'string' || !/^https?:/.test(model)) throw new Refused(`the model's file '${path}' was not given`);
  const folder = new URL('.', model).href;
  const { href } = new URL(path.split('/').map(encodeURIComponent).join('/'), folder);
  if (!href.startsWith(folder)) throw new Refused(`the model's file '${path}' is not in ${folder}`);
  return href;
}

/**
 * Refuse a plan that computes in another precision than a session is to.
 * @param {Record<string, unknown>} options those that the plan follows from
 * @param {Record<string, unknown>} [extra] the session's configuration entries
 */
function comparePrecision({ precision = 'float32', float32_nodes: kept = [] }, extra = {}) {
  const wanted = String(extra['pyruntime.precision'] || 'float32');
  if (precision !== wanted) throw new Refused(`it computes in ${precision}, and the session is to in ${wanted}`);
  const nodes = [...new Set(JSON.parse(String(extra['pyruntime.float32_nodes'] ?? '[]')))].sort();
  if (JSON.stringify(kept) !== JSON.stringify(nodes)) throw new Refused(`it has the nodes ${JSON.stringify(kept)} in float32, and the session ${JSON.stringify(nodes)}`);
}

/**
 * A session's client over the plan in `file`.
 * @param {ArrayBuffer} file
 * @param {Opened | null} there null: the plan is for WebAssembly
 * @param {Wanted} wanted
 * @param {Record<string, string>} [tags] strong ETags of the model's files
 */
async function start(file, there, { create, onProgress, signal, onGpu, compiled = false }, tags) {
  const began = performance.now();
  const read = await readPlan(file, { version, ...there });
  comparePrecision(read.header.options, /** @type {any} */ (create.options).extra);
  const { inputs, outputs, decoder, programs } = read.header;
  const stay = programs.some((one) => one.inputs.length + one.outputs.length);
  if (onGpu && !stay) throw new Refused('outputs stay on the GPU');
  const program = there ? new Program(there.device, read, there.adapter) : new (await import('./wasm_program.js')).WasmProgram(read);
  const bytes = (/** @type {number} */ n) => `${n.toLocaleString('en')} bytes`;
  if (program.nbytes > memoryBytes()) throw new Refused(`it takes ${bytes(program.nbytes)} ${there ? 'on the GPU' : 'of WebAssembly'}, and the device has ${bytes(memoryBytes())} of memory`);
  onProgress({ phase: 'model', status: 'begin' });
  const report = (/** @type {number} */ loaded, /** @type {number} */ total) => (
    onProgress({ phase: 'model', status: 'progress', loaded, total }));
  const files = read.header.files.map(({ path }) => sourceOf(path, create));
  await program.prepare([create.model, ...files], report, signal, tags);
  const ms = performance.now() - began;
  program.timings.create_ms = ms;
  onProgress({ phase: 'model', status: 'end', ms });
  const boundCaches = stay && there ? new (await import('./bound_caches.js')).BoundCaches(there.device) : null;
  const owner = new StandaloneClient(program, create, boundCaches, compiled);
  return { owner, info: { handle: owner.handle, inputs, outputs, decoder } };
}

/**
 * The session that `work` opens; null where it fails, for the reason that the console gives. Rejects with OutOfMemory where the
 * device has no memory for the model's file.
 * @param {() => ReturnType<typeof start>} work
 * @param {AbortSignal} [signal]
 * @param {(error: unknown) => void} [refused]
 */
async function unlessRefused(work, signal, refused) {
  signal?.throwIfAborted();
  try {
    return await unlessAborted(work(), signal, ({ owner }) => { owner.call('release', {}); });
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    if (error instanceof OutOfMemory) throw error; // Python would ask for the file again
    refused?.(error);
    console.info(`pyruntime: the plan is not used, Python plans: ${/** @type {Error} */ (error).message}`);
    return null;
  }
}

/**
 * Open a session over a cached plan; null where none fits.
 * @param {typeof import('./caching.js')} keeping
 * @param {string} place
 * @param {Wanted} wanted
 */
async function fromCache({ find, forget }, place, wanted) {
  const found = await find(place).catch(() => []);
  if (!found.length) return null;
  /** @type {import('./plan_cache.js').CachedFile | undefined} */
  let kept;
  return unlessRefused(async () => {
    const there = await device();
    const same = (/** @type {any} */ other) => JSON.stringify(Object.entries(other).sort()) === JSON.stringify(Object.entries(there.adapter).sort());
    const ours = found.filter(({ version: by }) => by === version);
    if (!ours.length) throw new Refused(`the cached plan is of pyruntime ${found[0].version}, and this is ${version}`);
    kept = ours.find(({ adapter }) => same(adapter));
    if (!kept) throw new Refused('the cached plan is for another adapter');
    const file = await kept.read();
    if (!file) throw new Refused('the cached plan cannot be read');
    return start(file, there, wanted, kept.tags);
  }, wanted.signal, () => { if (kept) forget(place, kept).catch(() => {}); });
}

/**
 * Open a session over the page's plan or a cached one. `made`: the session's client; null where no plan fits, for the reason that
 * the console gives. `keeping`: makes the `Keeper` that caches new plans.
 * @param {string | Blob | ArrayBuffer | undefined} plan
 * @param {boolean | 'write'} keep whether to cache plans; true: use a cached plan, too
 * @param {import('../api/protocol.js').CreateArguments} create
 * @param {any} options as the page gave them
 * @param {(event: import('../pyruntime.js').ProgressEvent) => void} [onProgress]
 * @param {AbortSignal} [signal]
 */
export async function open(plan, keep, create, options, onProgress = () => {}, signal) {
  const { onProgress: _, signal: __, externalData: ___, cachePlan: ____, ...rest } = options;
  const wanted = { create, onProgress, signal };
  const kept = keep && !wantsPython(rest, true) ? await import('./caching.js') : null;
  const may = kept?.permission();
  const place = await kept?.placeOf(create.model, create.options, create.externalData);
  const keeping = (/** @type {any} */ owner, /** @type {number} */ handle) => (
    kept && place && may ? new kept.Keeper(owner, handle, place, may) : null);
  const given = plan && await unlessRefused(async () => {
    const [byGpu, byWasm] = [wantsPython(rest, false), wantsPython(rest, false, true)];
    if (byGpu && byWasm) throw new Refused(byGpu);
    if (!byGpu) device().catch(() => {}); // awaited where the plan is for a GPU
    const file = await planBytes(plan, signal);
    const reason = isForWasm(file) ? byWasm : byGpu;
    if (reason) throw new Refused(reason);
    return start(file, isForWasm(file) ? null : await device(), { ...wanted, onGpu: staysOnGpu(rest), compiled: true });
  }, signal);
  return { made: given || (kept && place && keep === true && await fromCache(kept, place, wanted)), keeping };
}
