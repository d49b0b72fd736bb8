// @ts-check
/** Hosts Python and answers the requests of client.js: in a worker, or in the thread of the page. */

import { Loading } from './loading/loading.js';
import { Incoming } from './pieces.js';
import * as replays from './replay.js';
import { startPython, timed } from './runtime.js';
import { Tensors } from './tensors.js';
import { limited } from './waiting.js';

/** Runs kept by session: a model is usually run with few different input shapes. */
const REPLAYS = 8;

/**
 * What is known of a session.
 * @typedef {object} Session
 * @property {number} outputs how many its model has
 * @property {import('./replay.js').Replay[]} replays runs it can replay without Python
 * @property {Set<Promise<unknown>>} replaying those under way
 * @property {import('./tensors.js').Memory[]} spares memory for outputs that stay on the GPU
 * @property {boolean} runsAhead whether it may begin runs before they are asked for
 * @property {import('./ahead/ahead.js').Ahead | null} ahead runs begun before they are asked for
 * @property {import('./loading/loading.js').Held} model its file
 * @property {Record<string, string>} tags strong ETags of its files, by address
 * @property {Promise<string>} [hash] of it
 */

/** @type {Map<number, Session>} */
const sessions = new Map();

/** Those that stay on the GPU. @type {Tensors} */
let tensors;

/** @type {(number: number) => any} */
let settleInPython;

/** Hears why Python has ended: in a worker, whose errors the page hears of, or who has set it. @type {(message: string) => void} */
let ended = (message) => self.reportError(new Error(message));

/** In the thread of the page: who waits for answers hears it. @param {(message: string) => void} tell */
export function whenEnded(tell) {
  ended = tell;
}

/** The GPUBuffer of a tensor alone, for a page in this thread. @param {number} tensor */
export function settle(tensor) {
  return tensors.receive(settleInPython(tensors.forPython(tensor)), null).buffer;
}

/** Once it is here: most pages have no use for it. @type {typeof import('./ahead/ahead.js') | null} */
let aheadModule = null;

/** Without it runs are not begun ahead. */
async function loadAhead() {
  aheadModule ??= await import('./ahead/ahead.js').catch(() => null);
}

/** Texts whose tokens are chosen on the GPU. @type {Map<number, import('./decoding.js').Decoding>} */
const decodings = new Map();
let lastDecoding = 0;

/** @typedef {import('./runtime.js').Report} Report */

/** Python's `pyruntime.bridge`, there when `start` has been answered. @type {Promise<any> | undefined} */
let bridge;

/** What ends each request that has not been answered, by its id. @type {Map<number, AbortController>} */
const underWay = new Map();

/**
 * Await `pyruntime.bridge.serve(function_, ...args)`, which answers `{value}` or `{error}` as JavaScript objects.
 * @param {string} function_
 * @param {...unknown} args
 */
async function callPython(function_, ...args) {
  const answer = await (await bridge).serve(function_, ...args);
  if (answer.error) throw answer.error;
  return answer.value;
}

/** @typedef {{id: number, signal: AbortSignal}} Request */

/**
 * `callPython` for a function that Python's `cancel` ends: its first argument is the request.
 * @param {Request} request
 * @param {string} function_
 * @param {...unknown} args
 */
async function callCancellable(request, function_, ...args) {
  const python = await bridge;
  const { id, signal } = request;
  const end = () => python.cancel(id);
  signal.addEventListener('abort', end);
  try {
    return await callPython(function_, request, ...args);
  } finally {
    signal.removeEventListener('abort', end);
  }
}

/**
 * What a replay can be fed; null where there is anything else.
 * @param {Record<string, import('./protocol.js').WireValue>} feeds
 * @returns {Record<string, import('./replay.js').Fed> | null}
 */
function replayable(feeds) {
  /** @type {Record<string, import('./replay.js').Fed>} */
  const found = {};
  for (const [name, value] of Object.entries(feeds)) {
    if (!value) return null;
    if (!('kind' in value)) {
      found[name] = /** @type {import('./protocol.js').WireTensor} */ (value);
      continue;
    }
    const remote = value.kind === 'gpu' ? tensors.get(/** @type {any} */ (value).gpu) : undefined;
    if (!remote || String(remote.dims) !== String(/** @type {any} */ (value).dims)) return null;
    found[name] = { ...remote, remote };
  }
  return found;
}

/**
 * Values as Python takes them: with its own numbers of tensors on the GPU.
 * @param {Record<string, any>} values
 */
function forPython(values) {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => (
    [name, value?.kind === 'gpu' ? { ...value, gpu: tensors.forPython(value.gpu) } : value])));
}

/**
 * A session whose files arrive while it is made: why one of them did not is told rather than what became of it.
 * @param {Loading} loading
 * @param {() => Promise<any>} work
 */
async function created(loading, work) {
  try {
    return await work();
  } catch (error) {
    await loading.failed();
    throw error;
  } finally {
    loading.stop();
    loading.settle();
  }
}

/** Tensors on their way. @type {Map<number, Incoming>} */
const streams = new Map();

/**
 * Put what will arrive in the place of each stream's name.
 * @param {Record<string, any>} feeds
 * @returns {Incoming[]}
 */
function receive(feeds) {
  return Object.values(feeds).filter((value) => value?.data?.stream).map((value) => {
    const { stream, nbytes } = value.data;
    value.data = new Incoming(nbytes);
    streams.set(stream, value.data);
    return value.data;
  });
}

/** The next bytes of a stream. @param {import('./protocol.js').Piece} message */
export function arrive({ stream, piece, failure }) {
  const incoming = streams.get(stream);
  if (piece) incoming?.push(piece);
  else incoming?.fail(failure ?? '');
  if (!piece || incoming?.complete) streams.delete(stream);
}

/**
 * Run a session, without Python where it has run like this before, and without waiting where that run has been begun already.
 * @param {import('./protocol.js').RunArguments} args
 * @param {Request} request
 */
async function run(args, request) {
  const { session, feeds, fetches, kept, options } = args;
  const known = sessions.get(session);
  const anew = Object.values(kept).every((target) => target === null);
  const given = known && anew && !Object.keys(options).length ? replayable(feeds) : null;
  if (!known?.runsAhead || !Object.keys(kept).length) return runNow(args, given, request);
  known.ahead ??= aheadModule && new aheadModule.Ahead(beside, session, known);
  if (!known.ahead) {
    loadAhead();
    return runNow(args, given, request); // what it is fed may be disposed of while a module loads
  }
  const asked = { fetches, stay: Object.keys(kept) };
  const began = performance.now();
  const begun = known.ahead.take(given, asked);
  if (begun) {
    try {
      return await limited(begun, known.replays[0]?.seconds);
    } catch (error) {
      if (/** @type {Error} */ (error).name === 'Fail') throw error;
      // It is run once more, and tells what is wrong.
    }
  }
  const outputs = await runNow(args, given, request, asked);
  known.ahead.ran(given, asked, outputs, performance.now() - began);
  return outputs;
}

/**
 * @param {import('./protocol.js').RunArguments} args
 * @param {Record<string, import('./replay.js').Fed> | null} given the feeds of a run that can be replayed
 * @param {Request} request
 * @param {import('./ahead/ahead.js').Asked | null} [asked] where further runs may be begun behind it
 */
async function runNow({ session, feeds, fetches, kept, options }, given, request, asked = null) {
  const known = sessions.get(session);
  const replayed = known && given ? replay(known, given, fetches, Object.keys(kept)) : null;
  if (known && given && replayed) {
    known.replaying.add(replayed.running);
    const foreseen = asked && known.ahead?.follow(replayed.prepared, given, asked);
    try {
      const outputs = await limited(replayed.running, replayed.prepared.replay.seconds);
      await foreseen;
      return outputs;
    } catch (error) {
      replayed.prepared.replay.live = false; // Python finds out why, and mends what can be mended
      if (/** @type {Error} */ (error).name === 'Fail') throw error;
    } finally {
      known.replaying.delete(replayed.running);
    }
  }
  for (const value of /** @type {any[]} */ (Object.values(feeds))) {
    if (value?.data instanceof Incoming) value.data = await value.data.whole();
  }
  const wires = [forPython(feeds), fetches, forPython(kept), options];
  const { outputs, replay: made } = await callCancellable(request, 'run', session, ...wires);
  if (known && made) {
    const others = known.replays.filter((other) => other.live && other !== made);
    known.replays = [made, ...others].slice(0, REPLAYS);
  }
  for (const [name, value] of Object.entries(outputs)) {
    if (value?.kind === 'gpu') outputs[name] = tensors.receive(value, known?.spares ?? null);
  }
  return outputs;
}

/**
 * A run without Python under way, where there has been one like it.
 * @param {Session} known
 * @param {Record<string, import('./replay.js').Fed>} given
 * @param {string[] | null} fetches
 * @param {string[]} stay
 */
function replay({ replays: made, outputs, spares }, given, fetches, stay) {
  for (const by of made) {
    const sizes = replays.matches(by, given, fetches, outputs, stay);
    const prepared = sizes && replays.prepare(by, given, sizes, tensors, spares);
    if (prepared) return { prepared, running: replays.finish(prepared, tensors) };
  }
  return null;
}

/** The number of the last request of this side's own; those of pages count upwards. */
let lastOwn = 0;

/** @returns {Request} */
function ownRequest() {
  lastOwn -= 1;
  return { id: lastOwn, signal: new AbortController().signal };
}

/** Sessions beside those of pages: what chooses tokens. @type {import('./ahead/chooser.js').Maker} */
const beside = {
  get tensors() {
    return tensors;
  },
  known: (session) => sessions.get(session),
  async model(session, options) {
    const made = await callPython('sampler', session, options);
    return made ? /** @type {Uint8Array<ArrayBuffer>} */ (made).slice().buffer : null;
  },
  async create(model) {
    const options = { extra: { 'pyruntime.host_work': 0 } };
    const { handle } = await methods.create({ model, externalData: [], options }, () => {}, { ...ownRequest(), spare: [] });
    return handle;
  },
  run: (args) => run(args, ownRequest()),
  release: (session) => methods.release({ session }, () => {}, { ...ownRequest(), spare: [] }),
};

/**
 * @typedef {object} UnderWay
 * @property {number} id
 * @property {AbortSignal} signal
 * @property {ArrayBuffer[]} spare gets the pieces of streams that are not needed any more
 */

/** @type {Record<string, (args: any, report: Report, request: UnderWay) => Promise<any>>} */
const methods = {
  /** @param {import('./protocol.js').StartArguments} places */
  async start(places, report) {
    sessions.clear();
    bridge = startPython(places, report, ended).then((pyodide) => (
      timed(report, 'import', () => pyodide.pyimport('pyruntime.bridge'))));
    const python = await bridge;
    tensors = new Tensors({ share_memory: python.share_memory, dispose: python.forget });
    settleInPython = python.settle;
  },

  async ready() {
    await bridge;
  },

  /** The URLs of what Python was started from: scripts, archives, WebAssembly. */
  async resources() {
    await bridge;
    return [globalThis.location.href, ...performance.getEntriesByType('resource').map(({ name }) => name)];
  },

  /** @param {import('./protocol.js').CreateArguments} args */
  async create({ model, externalData, options, ahead = false }, report, request) {
    const loading = new Loading(report, request.signal);
    const { extra } = /** @type {any} */ (options);
    const aheadLoaded = ahead && extra?.['pyruntime.expects'] ? loadAhead() : null; // outputs will stay on the GPU
    /** @type {any} */
    let held;
    const info = await created(loading, async () => {
      const [buffer, ...files] = await timed(report, 'model', () => (
        Promise.all([loading.model(model), ...externalData.map(({ data }) => loading.data(data))])));
      held = buffer;
      const external = externalData.map(({ path }, index) => [path, files[index]]);
      const beside = loading.beside(model);
      return loading.rightly(
        () => callCancellable(request, 'create', buffer, external, options, report, beside),
        (/** @type {{handle: number}} */ { handle }) => callPython('release', handle));
    });
    /** @type {Session} */
    const known = { outputs: info.outputs.length, replays: [], replaying: new Set(), spares: [], runsAhead: ahead, ahead: null, model: held, tags: loading.tags };
    sessions.set(info.handle, known);
    await aheadLoaded;
    return info;
  },

  /** @param {import('./protocol.js').RunArguments} args */
  async run(args, report, request) {
    const incoming = receive(args.feeds);
    try {
      return await run(args, request);
    } finally {
      request.spare.push(...incoming.flatMap(({ complete, pieces }) => (complete ? pieces : [])));
    }
  },

  /** Begin a text; the number of its loop. @param {import('./protocol.js').DecodeArguments} args */
  async decode(args) {
    const [device, { Decoding }] = await Promise.all([callPython('gpu_device'), import('./decoding.js')]);
    const made = new Decoding({ device, tensors, known: (session) => sessions.get(session), run }, args);
    lastDecoding += 1;
    decodings.set(lastDecoding, made);
    return lastDecoding;
  },

  /** @param {import('./protocol.js').DecodeStepsArguments} args */
  async decodeSteps(args, report, request) {
    const made = decodings.get(args.decoding);
    if (!made) throw new Error('decoding has ended');
    return made.steps(args, request);
  },

  /** @param {import('./protocol.js').DecodeEndArguments} args */
  async decodeEnd({ decoding, kept }) {
    const made = decodings.get(decoding);
    decodings.delete(decoding);
    return made ? made.end(kept) : {};
  },

  /** What a session has planned, for the next visit. @param {import('./protocol.js').KeepArguments} args */
  async keepPlan({ session, before }) {
    const known = sessions.get(session);
    if (!known) return null;
    const { treeHash } = await import('./plans/treehash.js');
    known.hash ??= treeHash(known.model);
    const made = await callPython('keep_plan', session, await known.hash, before, treeHash);
    return made && { ...made, tags: known.tags };
  },

  /** @param {import('./protocol.js').ReleaseArguments} args */
  async release({ session }) {
    await sessions.get(session)?.ahead?.end();
    tensors?.release(sessions.get(session)?.spares ?? []);
    sessions.delete(session);
    return callPython('release', session);
  },

  /** @param {import('./protocol.js').CancelArguments} args */
  async cancel({ request }) {
    underWay.get(request)?.abort();
  },

  /** @param {import('./protocol.js').ReleaseArguments} args */
  async profile({ session }) {
    const known = sessions.get(session);
    if (known) {
      known.replays = []; // Python measures, dispatch by dispatch, in the memory of those still on their way
      await Promise.allSettled(known.replaying);
    }
    return callPython('start_profiling', session);
  },

  /** A tensor's data. @param {import('./protocol.js').TensorArguments} args */
  async download({ tensor }) {
    return callPython('download', tensors.forPython(tensor));
  },

  /** A tensor of the page's, on the GPU from now on. @param {import('./protocol.js').UploadArguments} args */
  async upload({ tensor }) {
    const { buffer: _, ...made } = tensors.receive(await callPython('upload', tensor), null);
    return made;
  },

  /** Give tensors' memory back. @param {{tensors: number[]}} args */
  async dispose({ tensors: disposed }) {
    for (const tensor of disposed) {
      for (const { ahead } of sessions.values()) ahead?.disposed(tensor);
      tensors?.dispose(tensor);
    }
  },

  /** How many tensors on the GPU JavaScript holds. */
  async keptTensors() {
    return tensors.size;
  },

  /** @param {import('./protocol.js').CallArguments} args */
  async call({ function: function_, arguments: args }) {
    return callPython(function_, ...args);
  },
};

/**
 * Every ArrayBuffer in a reply, to be transferred; each once, also where two outputs share it.
 * @param {any} value
 * @returns {ArrayBuffer[]}
 */
function buffers(value) {
  /** @type {(value: any) => ArrayBuffer[]} */
  const all = (item) => {
    if (item instanceof ArrayBuffer) return [item];
    return item && typeof item === 'object' ? Object.values(item).flatMap(all) : [];
  };
  return [...new Set(all(value))];
}

/**
 * Answer a request.
 * @param {import('./protocol.js').Request} request
 * @param {(message: import('./protocol.js').Answer, transfer: ArrayBuffer[]) => void} post
 */
export async function answer({ id, method, arguments: args }, post) {
  const controller = new AbortController();
  /** @type {ArrayBuffer[]} */
  const spare = [];
  underWay.set(id, controller);
  try {
    const report = (/** @type {import('./pyruntime.js').ProgressEvent} */ progress) => post({ id, progress }, []);
    const value = await methods[method](args, report, { id, signal: controller.signal, spare });
    post({ id, value, spare }, [...buffers(value), ...spare]);
  } catch (thrown) {
    const { name, message, traceback } = /** @type {any} */ (thrown);
    post({ id, error: { name: name ?? 'Error', message: message ?? String(thrown), traceback }, spare }, spare);
  } finally {
    underWay.delete(id);
  }
}
