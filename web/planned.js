// @ts-check
/**
 * Sessions over compiled models, without Python: what client.js is to others. What a plan does not have, another
 * signature or `explain()`, Python is started for, and does from then on.
 */

import { client } from './client.js';
import { chosenDevice, env, version } from './env.js';
import { cut, Incoming } from './pieces.js';
import { readPlan, Refused } from './plan.js';
import { matches, run } from './replay.js';
import { Program } from './program.js';

const LIMITS = /** @type {const} */ ([
  'maxStorageBuffersPerShaderStage', 'maxStorageBufferBindingSize', 'maxBufferSize', 'maxUniformBufferBindingSize',
  'maxComputeWorkgroupsPerDimension', 'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupStorageSize']);

/** The device of all compiled models. @type {Promise<{device: GPUDevice, vendor: string}> | undefined} */
let opened;

async function open() {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) throw new Refused('this browser has no adapter yet');
  const features = /** @type {GPUFeatureName[]} */ (['subgroups', 'shader-f16'].filter((name) => adapter.features.has(name)));
  const requiredLimits = Object.fromEntries(LIMITS.map((name) => [name, Number(adapter.limits[name])]));
  const device = await adapter.requestDevice({ requiredLimits, requiredFeatures: features });
  device.lost.then(() => { opened = undefined; });
  return { device, vendor: adapter.info.vendor.toLowerCase() };
}

function device() {
  opened ??= open();
  opened.catch(() => { opened = undefined; });
  return opened;
}

/**
 * Why a session with these options needs Python from its beginning; null where it does not.
 * @param {any} options
 */
function wantsPython({ executionProviders, preferredOutputLocation, enableProfiling, extra, logId, logSeverityLevel, ...rest }) {
  const providers = executionProviders?.map((/** @type {any} */ p) => p?.name ?? p);
  if (executionProviders?.some((/** @type {any} */ p) => p?.device) || chosenDevice()) return 'a GPUDevice is given';
  if (providers?.length && providers[0] !== 'webgpu') return `the first execution provider is '${providers[0]}'`;
  if (preferredOutputLocation && JSON.stringify(preferredOutputLocation).includes('gpu-buffer')) return 'outputs stay on the GPU';
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
  #sharesBuffers = false;

  /** @param {Program} program @param {import('./protocol.js').CreateArguments} create what Python is asked for */
  constructor(program, create) {
    this.#program = program;
    this.#create = create;
  }

  get sharesBuffers() {
    return this.#sharesBuffers;
  }

  /** @param {string} why */
  #start(why) {
    if (!this.#python) {
      console.info(`pyruntime: ${why}: the session goes on with Python`);
      this.#python = (async () => {
        const owner = client();
        await owner.ready;
        const { handle } = await owner.call('create', this.#create);
        this.#sharesBuffers = owner.sharesBuffers;
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
    const running = /** @type {Promise<Record<string, any>>} */ (run(found.replay, given, found.sizes, null, []));
    this.#running.add(running);
    try {
      const outputs = await running;
      listening.signal?.throwIfAborted();
      return fetches ? Object.fromEntries(fetches.map((/** @type {string} */ name) => [name, outputs[name]])) : outputs;
    } catch (error) {
      if (listening.signal?.aborted) throw error;
      found.replay.live = false;
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
    for (const replay of this.#program.replays) {
      const sizes = matches(replay, feeds, null, names.length, []);
      if (sizes) return { replay, sizes };
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
 * A session's client over a plan; null where the plan is not used, which the console says why.
 * @param {string | Blob | ArrayBuffer} plan
 * @param {import('./protocol.js').CreateArguments} create
 * @param {any} options as the page gave them
 * @param {(event: import('./pyruntime.js').ProgressEvent) => void} [onProgress]
 * @param {AbortSignal} [signal]
 */
export async function planned(plan, create, options, onProgress = () => {}, signal) {
  signal?.throwIfAborted();
  try {
    const { onProgress: _, signal: __, externalData: ___, ...rest } = options;
    const reason = wantsPython(rest);
    if (reason) throw new Refused(reason);
    const [there, file] = await Promise.all([device(), planBytes(plan, signal)]);
    const read = await readPlan(file, { version, ...there });
    const program = new Program(there.device, read);
    onProgress({ phase: 'model', status: 'begin' });
    const began = performance.now();
    const report = (/** @type {number} */ loaded, /** @type {number} */ total) => (
      onProgress({ phase: 'model', status: 'progress', loaded, total }));
    await program.prepare(create.model, report, signal);
    onProgress({ phase: 'model', status: 'end', ms: performance.now() - began });
    const { inputs, outputs } = read.header;
    return { owner: new PlannedClient(program, create), info: { handle: 0, inputs, outputs } };
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    console.info(`pyruntime: the plan is not used, Python plans: ${/** @type {Error} */ (error).message}`);
    return null;
  }
}
