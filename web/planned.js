// @ts-check
/**
 * Sessions over compiled models, without Python: what client.js is to others. What a plan does not have, another
 * signature or `explain()`, Python is started for, and does from then on.
 */

import { client, started } from './client.js';
import { chosenDevice, env, version } from './env.js';
import { Keeper } from './keeping.js';
import { find, forget, permission, placeOf } from './kept.js';
import { cut, Incoming } from './pieces.js';
import { readPlan, Refused } from './plan.js';
import { matches, run } from './replay.js';
import { Program } from './program.js';

const LIMITS = /** @type {const} */ ([
  'maxStorageBuffersPerShaderStage', 'maxStorageBufferBindingSize', 'maxBufferSize', 'maxUniformBufferBindingSize',
  'maxComputeWorkgroupsPerDimension', 'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupStorageSize']);

/** Milliseconds between questions for an adapter, while the browser's GPU process may be starting. */
const PAUSES = [50, 100, 200, 200, 400];

/** @typedef {{device: GPUDevice, vendor: string, adapter: import('./pyruntime.js').AdapterInfo}} Opened */

/** The device of all compiled models. @type {Promise<Opened> | undefined} */
let opened;

/** @returns {Promise<GPUAdapter>} */
async function findAdapter() {
  for (const pause of [...PAUSES, 0]) {
    const adapter = await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' });
    if (adapter) return adapter;
    if (!navigator.gpu || !pause) break;
    await new Promise((resolve) => { setTimeout(resolve, pause); });
  }
  throw new Refused('this browser has no adapter');
}

/** @returns {Promise<Opened>} */
async function openDevice() {
  const adapter = await findAdapter();
  const features = /** @type {GPUFeatureName[]} */ (['subgroups', 'shader-f16'].filter((name) => adapter.features.has(name)));
  const requiredLimits = Object.fromEntries(LIMITS.map((name) => [name, Number(adapter.limits[name])]));
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

/**
 * Why a session with these options needs Python from its beginning; null where it does not.
 * @param {any} options
 * @param {boolean} same whether the plan was made for these options
 */
function wantsPython({ executionProviders, preferredOutputLocation, enableProfiling, extra, logId, logSeverityLevel, ...rest }, same) {
  const providers = executionProviders?.map((/** @type {any} */ p) => p?.name ?? p);
  if (executionProviders?.some((/** @type {any} */ p) => p?.device) || chosenDevice()) return 'a GPUDevice is given';
  if (providers?.length && providers[0] !== 'webgpu') return `the first execution provider is '${providers[0]}'`;
  if (preferredOutputLocation && JSON.stringify(preferredOutputLocation).includes('gpu-buffer')) return 'outputs stay on the GPU';
  if (same) return enableProfiling || /pyruntime(?!\.host_work)/.test(JSON.stringify(extra ?? {})) ? 'runs are to be watched' : null;
  if (env.worker === false) return 'Python is to be in this thread, with a device that tensors share';
  const others = Object.keys({ ...rest, ...extra, ...(enableProfiling ? { enableProfiling } : {}) });
  const wanted = others.filter((name) => name !== 'pyruntime.host_work' && name !== 'plan');
  return wanted.length ? `the plan is for other options (${wanted.join(', ')})` : null;
}

/** @param {string | Blob | ArrayBuffer} source @param {AbortSignal} [signal] */
async function planBytes(source, signal) {
  if (source instanceof ArrayBuffer) return source;
  if (source instanceof Blob) return source.arrayBuffer();
  const response = await fetch(source, { signal }).catch((error) => {
    throw signal?.aborted ? error : new Refused(`it cannot be fetched: ${error.message}`);
  });
  if (!response.ok) throw new Refused(`it cannot be fetched: HTTP status ${response.status}`);
  return response.arrayBuffer();
}

/** What a session talks to instead of the client. */
class PlannedClient {
  #program;
  #create;
  /** @type {Promise<{owner: ReturnType<typeof client>, handle: number}> | undefined} */
  #python;
  /** @type {Map<number, (view: ArrayBufferView) => void>} */
  #streams = new Map();
  /** @type {Set<Promise<unknown>>} */
  #running = new Set();

  /** @param {Program} program @param {import('./protocol.js').CreateArguments} create what Python is asked for */
  constructor(program, create) {
    this.#program = program;
    this.#create = create;
  }

  /** Whether GPUBuffers can go to Python, which is where they are. */
  get sharesBuffers() {
    return started()?.sharesBuffers ?? env.worker === false;
  }

  /** Who holds the tensors that stay on the GPU. @returns {object} */
  get holder() {
    return started() ?? this;
  }

  /** @param {string} why */
  #start(why) {
    if (!this.#python) {
      console.info(`pyruntime: ${why}: the session goes on with Python`);
      this.#python = (async () => {
        const owner = client();
        await owner.ready;
        const { handle } = await owner.call('create', this.#create);
        return { owner, handle };
      })();
      this.#python.catch(() => { this.#python = undefined; });
    }
    return this.#python;
  }

  /**
   * @param {string} method
   * @param {any} args
   * @param {Transferable[]} [transfer]
   * @param {import('./client.js').Listening} [listening]
   */
  async call(method, args, transfer = [], listening = {}) {
    listening.signal?.throwIfAborted();
    if (method === 'release') return this.#release();
    if (method === 'run') return this.#run(args, transfer, listening);
    if (method === 'keepPlan' && !this.#python) return null; // it is what is kept
    if (method === 'call' && args.function === 'summary' && !this.#python) return this.#program.summary();
    const what = method === 'call' ? `${args.function}()` : method;
    return this.#forward(`${what} was asked for`, method, args, transfer, listening);
  }

  /**
   * @param {string} why
   * @param {string} method
   * @param {any} args
   * @param {Transferable[]} transfer
   * @param {import('./client.js').Listening} listening
   * @param {Map<number, ArrayBufferView>} [streams] to be sent behind it
   */
  async #forward(why, method, args, transfer, listening, streams = new Map()) {
    const { owner, handle } = await this.#start(why);
    const changed = method === 'call' ? { ...args, arguments: [handle, ...args.arguments.slice(1)] } : { ...args, session: handle };
    const answer = owner.call(method, changed, transfer, listening);
    for (const [stream, view] of streams) owner.send(stream, view);
    return answer;
  }

  /**
   * @param {any} args
   * @param {Transferable[]} transfer
   * @param {import('./client.js').Listening} listening
   */
  async #run(args, transfer, listening) {
    const { feeds, fetches, kept, options } = args;
    const found = Object.keys(kept).length || Object.keys(options).length ? null : this.#replay(feeds, fetches);
    if (!found) {
      /** @type {Map<number, ArrayBufferView>} */
      const streams = new Map();
      for (const value of /** @type {any[]} */ (Object.values(feeds))) {
        const stream = value?.data?.stream;
        if (stream) this.#streams.set(stream, (view) => streams.set(stream, copied(view)));
      }
      return this.#forward('no plan runs these inputs and outputs', 'run', args, transfer, listening, streams);
    }
    const given = this.#received(feeds);
    const running = this.#program.replay(found.entry).then((replay) => (
      /** @type {Promise<Record<string, any>>} */ (run(replay, given, found.sizes, null, []))));
    this.#running.add(running);
    try {
      const outputs = await running;
      listening.signal?.throwIfAborted();
      return fetches ? Object.fromEntries(fetches.map((/** @type {string} */ name) => [name, outputs[name]])) : outputs;
    } catch (error) {
      if (listening.signal?.aborted) throw error;
      found.entry.seen.live = false;
      for (const value of Object.values(given)) {
        if (value.data instanceof Incoming) value.data = await value.data.whole();
      }
      const why = `the plan failed (${/** @type {Error} */ (error).message})`;
      return this.#forward(why, 'run', { ...args, feeds: given }, transfer, listening);
    } finally {
      this.#running.delete(running);
    }
  }

  /** The feeds with what will arrive in the place of each stream's name. @param {Record<string, any>} feeds */
  #received(feeds) {
    return Object.fromEntries(Object.entries(feeds).map(([name, value]) => {
      const { stream, nbytes } = value.data;
      if (!stream) return [name, { ...value }];
      const data = new Incoming(nbytes);
      this.#streams.set(stream, (view) => { for (const piece of cut(view)) data.push(piece); });
      return [name, { ...value, data }];
    }));
  }

  /** @param {Record<string, any>} feeds @param {string[] | null} fetches */
  #replay(feeds, fetches) {
    const names = this.#program.plan.header.outputs.map(({ name }) => name);
    if (Object.values(feeds).some((value) => !value || 'kind' in value || Array.isArray(value.data))) return null;
    if (fetches?.some((name) => !names.includes(name))) return null;
    for (const entry of this.#program.entries) {
      const sizes = matches(/** @type {import('./replay.js').Replay} */ (entry.seen), feeds, null, names.length, []);
      if (sizes) return { entry, sizes };
    }
    return null;
  }

  /** @param {number} stream @param {ArrayBufferView} view */
  send(stream, view) {
    this.#streams.get(stream)?.(view);
    this.#streams.delete(stream);
  }

  /** @param {number} number */
  async download(number) {
    return (await this.#start('a tensor on the GPU was asked for')).owner.download(number);
  }

  /** @param {number} number */
  settle(number) {
    return started()?.settle(number);
  }

  /** @param {number} number */
  dispose(number) {
    this.#python?.then(({ owner }) => owner.dispose(number), () => {});
  }

  async #release() {
    await Promise.allSettled(this.#running);
    this.#program.release();
    const python = await this.#python?.catch(() => undefined);
    if (python) await python.owner.call('release', { session: python.handle });
  }
}

/** @param {ArrayBufferView} view */
function copied({ buffer, byteOffset, byteLength }) {
  return new Uint8Array(buffer.slice(byteOffset, byteOffset + byteLength));
}

/**
 * @typedef {object} Wanted
 * @property {import('./protocol.js').CreateArguments} create
 * @property {(event: import('./pyruntime.js').ProgressEvent) => void} onProgress
 * @property {AbortSignal} [signal]
 */

/**
 * Where a file is that the model keeps weights in: what was given, else beside the model.
 * @param {string} path
 * @param {import('./protocol.js').CreateArguments} create
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
 * A session's client over the plan in `file`.
 * @param {ArrayBuffer} file
 * @param {Opened} there
 * @param {Wanted} wanted
 */
async function start(file, there, { create, onProgress, signal }) {
  const began = performance.now();
  const read = await readPlan(file, { version, ...there });
  const program = new Program(there.device, read, there.adapter);
  onProgress({ phase: 'model', status: 'begin' });
  const report = (/** @type {number} */ loaded, /** @type {number} */ total) => (
    onProgress({ phase: 'model', status: 'progress', loaded, total }));
  const files = read.header.files.map(({ path }) => sourceOf(path, create));
  await program.prepare([create.model, ...files], report, signal);
  const ms = performance.now() - began;
  program.timings.create_ms = ms;
  onProgress({ phase: 'model', status: 'end', ms });
  const { inputs, outputs } = read.header;
  return { owner: new PlannedClient(program, create), info: { handle: 0, inputs, outputs } };
}

/**
 * What `work` makes; null where it does not, which the console says why.
 * @template T
 * @param {() => Promise<T>} work
 * @param {AbortSignal} [signal]
 * @param {(error: unknown) => void} [refused]
 */
async function unlessRefused(work, signal, refused) {
  signal?.throwIfAborted();
  try {
    return await work();
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    refused?.(error);
    console.info(`pyruntime: the plan is not used, Python plans: ${/** @type {Error} */ (error).message}`);
    return null;
  }
}

/**
 * A session over what an earlier one has left in `place`; null where there is nothing that does.
 * @param {string} place
 * @param {Wanted} wanted
 */
async function fromKept(place, wanted) {
  const found = await find(place).catch(() => []);
  if (!found.length) return null;
  /** @type {import('./kept.js').Kept | undefined} */
  let kept;
  return unlessRefused(async () => {
    const there = await device();
    const same = (/** @type {any} */ other) => JSON.stringify(Object.entries(other).sort()) === JSON.stringify(Object.entries(there.adapter).sort());
    const ours = found.filter(({ version: by }) => by === version);
    if (!ours.length) throw new Refused(`the kept one is of pyruntime ${found[0].version}, and this is ${version}`);
    kept = ours.find(({ adapter }) => same(adapter));
    if (!kept) throw new Refused('the kept one is for another adapter');
    const file = await kept.read();
    if (!file) throw new Refused('the kept one cannot be read');
    return start(file, there, wanted);
  }, wanted.signal, () => { if (kept) forget(place, kept).catch(() => {}); });
}

/**
 * `made`: a session's client over a plan, that of the page or one that is kept; null where there is none that does, which the
 * console says why. `keeping`: what has new plans kept.
 * @param {string | Blob | ArrayBuffer | undefined} plan
 * @param {boolean} keep whether plans are kept, and looked for among those
 * @param {import('./protocol.js').CreateArguments} create
 * @param {any} options as the page gave them
 * @param {(event: import('./pyruntime.js').ProgressEvent) => void} [onProgress]
 * @param {AbortSignal} [signal]
 */
export async function open(plan, keep, create, options, onProgress = () => {}, signal) {
  const { onProgress: _, signal: __, externalData: ___, keepPlan: ____, ...rest } = options;
  const wanted = { create, onProgress, signal };
  const keeps = keep && !wantsPython(rest, true);
  const may = permission();
  const place = keeps ? await placeOf(create.model, create.options, create.externalData) : null;
  const keeping = (/** @type {any} */ owner, /** @type {number} */ handle) => (
    place ? new Keeper(owner, handle, place, may) : null);
  const given = plan && await unlessRefused(async () => {
    const reason = wantsPython(rest, false);
    if (reason) throw new Refused(reason);
    const [there, file] = await Promise.all([device(), planBytes(plan, signal)]);
    return start(file, there, wanted);
  }, signal);
  return { made: given || (place && await fromKept(place, wanted)), keeping };
}
