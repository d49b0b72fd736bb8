// @ts-check
/** InferenceSession: the JavaScript API of a model; a worker, or a plan in this thread, runs it. */

import { unlessAborted } from './aborting.js';
import { optionsOf, requireArray, requireText, wrong } from './arguments.js';
import { client, isShared } from './client.js';
import { env } from './env.js';
import { asTensor, isTensor } from './foreign.js';
import { mapBatches } from './map.js';
import { requireBrowser } from './port.js';
import { toFile, toSource, transferable } from './sources.js';
import { Tensor, moveTo } from './tensor.js';
import { fromWire, isMovable, remoteToWire, toStream, toWire, viewOf } from './marshalling.js';

/** @typedef {import('../pyruntime.js').InferenceSession} PublicSession */
/** @typedef {import('../pyruntime.js').ModelSource} ModelSource */
/** @typedef {import('../pyruntime.js').ValueMetadata} ValueMetadata */

/**
 * Split execution providers into providers without a GPUDevice, and the GPUDevice that one of them names.
 * @param {readonly any[] | undefined} providers
 */
function splitDevice(providers) {
  if (providers) requireArray('executionProviders', providers);
  const device = providers?.find((provider) => provider?.device)?.device;
  return { device, names: providers?.map((provider) => provider?.name ?? provider) };
}

/**
 * Return the names of outputs that stay on the GPU. Unknown names are ignored, since callers list the outputs of a family of models.
 * @param {string | Record<string, string> | undefined} preferred
 * @param {readonly string[]} outputs
 * @returns {Set<string>}
 */
function outputsOnGpu(preferred, outputs) {
  const places = typeof preferred === 'string' ? Object.fromEntries(outputs.map((name) => [name, preferred])) : preferred ?? {};
  const kept = new Set();
  for (const [name, place] of Object.entries(places)) {
    if (!['cpu', 'cpu-pinned', 'gpu-buffer'].includes(place)) {
      throw new RangeError(`preferredOutputLocation: 'cpu', 'cpu-pinned' or 'gpu-buffer', not '${place}'`);
    }
    if (place === 'gpu-buffer' && outputs.includes(name)) kept.add(name);
  }
  return kept;
}

/**
 * Return the session config entry for outputs that stay on the GPU, so that a decoder's runs are planned during loading.
 * @param {string | Record<string, string> | undefined} preferred
 */
function expected(preferred) {
  if (!preferred) return null;
  const names = typeof preferred === 'string' ? null : Object.keys(preferred).filter((name) => preferred[name] === 'gpu-buffer');
  return names?.length || preferred === 'gpu-buffer' ? JSON.stringify({ staying: names }) : null;
}

/**
 * Return the session config entries for the session options `precision` and `float32Nodes`.
 * @param {unknown} precision
 * @param {unknown} nodes
 */
function precisionEntries(precision, nodes) {
  if (precision !== undefined && precision !== 'float16' && precision !== 'float32') throw wrong('options.precision', "'float16' or 'float32'", precision);
  return {
    ...(precision && { 'pyruntime.precision': precision }),
    ...(nodes !== undefined && { 'pyruntime.float32_nodes': JSON.stringify(requireArray('options.float32Nodes', nodes)) }),
  };
}

/** @implements {PublicSession} */
export class InferenceSession {
  #client;
  #handle;
  #released = false;
  /** Names of outputs that stay on the GPU. @type {Set<string>} */
  #onGpu;
  /** @type {import('../plans/caching.js').Keeper | null} */
  #keeper;
  /** @type {import('../text/local.js').DecoderFacts | null} */
  #decoder;

  /**
   * Internal: use `InferenceSession.create`.
   * @param {ReturnType<typeof client>} owner
   * @param {import('./protocol.js').Created} info
   * @param {Set<string>} onGpu
   * @param {import('../plans/caching.js').Keeper | null} keeper
   */
  constructor(owner, { handle, inputs, outputs, decoder }, onGpu, keeper) {
    this.#client = owner;
    this.#handle = handle;
    this.#onGpu = onGpu;
    this.#keeper = keeper;
    this.#decoder = decoder ?? null;
    /** @type {readonly ValueMetadata[]} */
    this.inputMetadata = inputs;
    /** @type {readonly ValueMetadata[]} */
    this.outputMetadata = outputs;
  }

  /**
   * Load a model: `create(source, options?)` or `create(buffer, byteOffset, byteLength?, options?)`.
   * @param {ModelSource} source
   * @param {any[]} rest
   */
  static async create(source, ...rest) {
    let options = rest[0];
    if (typeof options === 'number') {
      const [byteOffset, byteLength] = rest;
      const buffer = /** @type {ArrayBuffer} */ (source);
      if (typeof buffer?.byteLength !== 'number' || ArrayBuffer.isView(buffer)) throw wrong('the model, with a byteOffset,', 'an ArrayBuffer', source);
      const length = typeof byteLength === 'number' ? byteLength : buffer.byteLength - byteOffset;
      source = new Uint8Array(buffer, byteOffset, length);
      options = rest.find((value) => typeof value === 'object' && value !== null);
    }
    const { onProgress, signal, externalData, preferredOutputLocation, executionProviders, plan, cachePlan, precision, float32Nodes, ...plain } = optionsOf('options', options);
    const { device, names } = splitDevice(executionProviders);
    if (names) plain.executionProviders = names;
    const expects = expected(preferredOutputLocation);
    plain.extra = {
      'pyruntime.host_work': env.hostWork, ...(expects && { 'pyruntime.expects': expects }), ...precisionEntries(precision, float32Nodes),
      ...plain.extra };
    requireBrowser();
    const reading = { signal, onProgress };
    const sources = Promise.all([
      toSource('the model', source, reading), plan && toSource('plan', plan, { signal }),
      ...requireArray('externalData', externalData ?? []).map((/** @type {any} */ file) => toFile(file, reading))]);
    if (!plan && !cachePlan) client(); // start Python while a stream is read
    const [model, planFile, ...files] = await sources;
    const transfer = [model, ...files.map(({ data }) => data)].flatMap(transferable);
    /** @type {(owner: any, handle: number) => import('../plans/caching.js').Keeper | null} */
    let keeping = () => null;
    if (plan || cachePlan) {
      // Imported in parallel: the browser would request the latter two only after the first.
      const isFetched = [model, planFile].some((given) => typeof given === 'string');
      const [{ open }] = await Promise.all([
        import('../plans/planned_session.js'), cachePlan ? import('../plans/caching.js') : null, isFetched ? import('../net/stream.js') : null]);
      const create = { model, externalData: files, options: plain, speculate: env.runAhead };
      const opened = await open(planFile, cachePlan ?? false, create, options, onProgress, signal);
      keeping = opened.keeping;
      if (opened.made) {
        return InferenceSession.#over(opened.made.owner, opened.made.info, preferredOutputLocation, keeping);
      }
    }
    const owner = client();
    if (device) await unlessAborted(owner.useDevice(device), signal);
    await unlessAborted(owner.ready, signal);
    const undo = (/** @type {{handle: number}} */ { handle }) => {
      owner.call('release', { session: handle }).catch(() => {}); // fails only without a worker, which has nothing to release
    };
    const info = await owner.call(
      'create', { model, externalData: files, options: plain, speculate: env.runAhead }, transfer, { onProgress, signal, undo });
    return InferenceSession.#over(owner, info, preferredOutputLocation, keeping);
  }

  /**
   * Wrap a session of a host; release it if the options are invalid.
   * @param {any} owner
   * @param {import('./protocol.js').Created} info
   * @param {any} preferred value of `preferredOutputLocation`
   * @param {(owner: any, handle: number) => import('../plans/caching.js').Keeper | null} keeping
   */
  static #over(owner, info, preferred, keeping) {
    try {
      const onGpu = outputsOnGpu(preferred, info.outputs.map(({ name }) => name));
      return new InferenceSession(owner, info, onGpu, keeping(owner, info.handle));
    } catch (error) {
      owner.call('release', { session: info.handle }).catch(() => {});
      throw error;
    }
  }

  /**
   * Return the host of a session, for modules that send it further requests; null if it is neither the shared client nor a plan.
   * @param {InferenceSession} session
   */
  static hostOf(session) {
    const owner = session.#client;
    const keeper = session.#keeper;
    if (!isShared(owner) && !('decodes' in owner)) return null;
    return {
      owner, handle: session.#handle, memory: owner,
      /** `cachePlan` for auxiliary sessions: cached plans are used only where this session came from one. @type {any} */
      cachePlan: keeper && (isShared(owner) ? 'write' : true),
      /** Record runs that did not come through `run`. */
      ran: () => keeper?.ranUnrequested(),
    };
  }

  /** Facts about a decoder's graph for text generation. @param {InferenceSession} session */
  static decoderOf(session) {
    return session.#decoder;
  }

  get inputNames() {
    return this.inputMetadata.map(({ name }) => name);
  }

  get outputNames() {
    return this.outputMetadata.map(({ name }) => name);
  }

  /**
   * Run the model: `run(feeds)`, `run(feeds, options)`, `run(feeds, fetches, options?)`.
   * @param {Record<string, import('../pyruntime.js').FeedValue>} feeds
   * @param {any} [fetches] output names, or names with tensors to fill (null: a new tensor)
   * @param {import('../pyruntime.js').RunOptions} [options]
   * @returns {Promise<Record<string, any>>}
   */
  async run(feeds, fetches, options) {
    this.#refuseReleased();
    if (typeof feeds !== 'object' || feeds === null || isTensor(feeds) || Array.isArray(feeds)) {
      throw wrong('feeds', 'an object of tensors by input name', feeds);
    }
    [fetches, options] = this.#fetchesAndOptions(fetches, options);
    const targets = Array.isArray(fetches) ? {} : fetches ?? {};
    const names = fetches ? (Array.isArray(fetches) ? fetches : Object.keys(fetches)) : null;
    const { sharesBuffers, streams } = this.#client;
    /** @type {Record<string, import('./protocol.js').WireValue>} */
    const wire = {};
    const given = Object.fromEntries(Object.entries(feeds).map(([name, value]) => [name, asTensor(value)]));
    const moves = [given, targets].some((some) => Object.values(some).flat().some(isMovable));
    for (const [name, value] of Object.entries(given)) {
      wire[name] = (streams && !moves && toStream(name, value)) || toWire(name, value, this.#client.holder, sharesBuffers);
    }
    const kept = this.#kept(names ?? this.outputNames, targets, sharesBuffers);
    const transfer = Object.values(wire).flatMap((value) => transferable(/** @type {any} */ (value)?.data));
    const { signal, terminate, onProgress, ...plain } = optionsOf('options', options);
    if (terminate) throw Object.assign(new Error('the run was ended by its option `terminate`'), { name: 'Fail' });
    const request = { session: this.#handle, feeds: wire, fetches: names, kept, options: plain };
    const undo = (/** @type {Record<string, any>} */ late) => {
      for (const [name, value] of Object.entries(late)) if (!targets[name]) giveBack(value, this.#client);
    };
    const answer = this.#client.call('run', request, transfer, { signal, undo, onProgress });
    for (const [name, value] of Object.entries(wire)) {
      const { stream } = /** @type {any} */ (value)?.data ?? {};
      if (stream) this.#client.send(stream, viewOf(given[name]));
    }
    const outputs = await answer;
    this.#keeper?.ran(given);
    /** @type {Record<string, any>} */
    const results = {};
    for (const [name, value] of Object.entries(/** @type {Record<string, any>} */ (outputs))) {
      results[name] = deliver(name, value, targets[name], this.#client);
    }
    return results;
  }

  /**
   * Run batches in a pipeline; yield results in the order of the batches.
   * @param {Iterable<import('../pyruntime.js').Feeds> | AsyncIterable<import('../pyruntime.js').Feeds>} batches
   * @param {import('../pyruntime.js').MapOptions} [options]
   * @returns {AsyncGenerator<Record<string, any>, void, void>}
   */
  map(batches, options) {
    this.#refuseReleased();
    const given = /** @type {any} */ (batches);
    if (!given?.[Symbol.iterator] && !given?.[Symbol.asyncIterator]) {
      throw wrong('batches', 'an iterable, or async iterable, of feeds', batches);
    }
    return mapBatches(this, batches, options);
  }

  /**
   * Parse the second and third argument of `run`.
   * @param {any} fetches
   * @param {any} options
   */
  #fetchesAndOptions(fetches, options) {
    if (fetches === undefined) return [undefined, options];
    if (typeof fetches !== 'object' || fetches === null || isTensor(fetches)) {
      throw wrong('fetches', 'an array of output names, or an object of tensors or null by output name', fetches);
    }
    if (Array.isArray(fetches)) {
      if (!fetches.length) throw new TypeError('fetches must name an output: it is an empty array');
      for (const name of fetches) requireText('an element of fetches', name);
      return [fetches, options];
    }
    const named = Object.entries(fetches).some(([name, value]) => (
      this.outputNames.includes(name) && (value === null || isTensor(value))));
    for (const [name, value] of named ? Object.entries(fetches) : []) {
      if (value !== null && !isTensor(value)) throw wrong(`fetches.${name}`, 'a Tensor or null', value);
    }
    return named ? [fetches, options] : [undefined, fetches];
  }

  /**
   * Return the outputs that stay on the GPU, each with the tensor it is written to, if any.
   * @param {readonly string[]} names
   * @param {Record<string, Tensor | null>} targets
   * @param {boolean} sharesBuffers
   */
  #kept(names, targets, sharesBuffers) {
    /** @type {Record<string, import('./protocol.js').WireRemote | null>} */
    const kept = {};
    for (const name of names) {
      const target = asTensor(targets[name]);
      if (target?.location === 'gpu-buffer') kept[name] = remoteToWire(name, target, this.#client.holder, sharesBuffers);
      else if (!target && this.#onGpu.has(name)) kept[name] = null;
    }
    return kept;
  }

  /** Start to record the times of runs, as the option `enableProfiling` does from creation. */
  async startProfiling() {
    this.#refuseReleased();
    await this.#client.call('profile', { session: this.#handle });
  }

  /**
   * Stop recording.
   * @returns {Promise<import('../pyruntime.js').TraceEvent[]>} events in Chrome's trace format
   */
  async endProfiling() {
    this.#refuseReleased();
    return this.#client.call('call', { function: 'end_profiling', arguments: [this.#handle] });
  }

  /** Return the model's metadata, placement of operators with reasons, and memory. */
  async summary() {
    this.#refuseReleased();
    return this.#client.call('call', { function: 'summary', arguments: [this.#handle] });
  }

  /** Return nodes, kernels with their WGSL, fusions, and memory over time. */
  async explain() {
    this.#refuseReleased();
    return this.#client.call('call', { function: 'explain', arguments: [this.#handle] });
  }

  /** Measure the candidate kernels of this model; sessions created later use the fastest. */
  async tune() {
    this.#refuseReleased();
    return this.#client.call('call', { function: 'tune', arguments: [this.#handle] });
  }

  async release() {
    if (this.#released) return;
    this.#released = true;
    await this.#keeper?.finish();
    await this.#client.call('release', { session: this.#handle });
  }

  #refuseReleased() {
    if (this.#released) throw new Error('the session is released');
  }
}

/**
 * Free an output on the GPU that is not passed to a caller.
 * @param {any} wire
 * @param {import('./marshalling.js').Memory} memory
 */
function giveBack(wire, memory) {
  if (wire?.kind === 'gpu') (wire.home ?? memory).dispose(wire.gpu);
}

/**
 * Return a result, or the caller's tensor filled with it.
 * @param {string} name
 * @param {any} wire
 * @param {Tensor | null | undefined} target
 * @param {import('./marshalling.js').Memory} memory
 */
function deliver(name, wire, target, memory) {
  if (!target) return fromWire(wire, memory);
  if (target.type !== wire.type || String(target.dims) !== String(wire.dims)) {
    throw new RangeError(`output '${name}' is ${wire.type} [${wire.dims}], its tensor ${target.type} [${target.dims}]`);
  }
  if (wire.kind === 'gpu') {
    moveTo(target, wire.buffer);
  } else if (wire.kind !== 'written') {
    const result = fromWire(wire, memory);
    const data = /** @type {any} */ (target.data);
    if (Array.isArray(data)) data.splice(0, data.length, .../** @type {string[]} */ (result.data));
    else data.set(result.data);
  }
  return target;
}
