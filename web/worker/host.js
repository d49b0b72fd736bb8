// @ts-check
/** Run Python and answer the requests of client.js, in a worker or in the page's thread. */

import { downloads } from '../loading/downloads.js';
import { Loading } from '../loading/loading.js';
import { makeMemoryBy } from '../gpu/result_memory.js';
import { Incoming } from '../net/pieces.js';
import { startSpeculation, loadSpeculation, Runs } from './runs.js';
import { startBridge } from './runtime.js';
import { anew } from '../net/stream.js';
import { Tensors } from './tensors.js';

export { downloads };

/** @type {Map<number, import('./runs.js').Session>} */
const sessions = new Map();

/** Passes the port of the downloads to the page; unset if Python runs in the caller's thread. @type {((port: MessagePort) => void) | undefined} */
let sendDownloads;

/** Serve a page from a dedicated worker. @param {(port: MessagePort) => void} send passes a port to the page */
export function servePage(send) {
  sendDownloads = send;
}

/** Tensors that stay on the GPU. @type {Tensors} */
let tensors;

/** @type {(number: number) => any} */
let materializeInPython;

/** Called with the reason when Python ends. In a worker, the error event reaches the page. @type {(message: string) => void} */
let ended = (message) => self.reportError(new Error(message));

/** Set the listener for the end of Python, in the page's thread. @param {(message: string) => void} tell */
export function whenEnded(tell) {
  ended = tell;
}

/** Move a tensor to a GPUBuffer that holds it alone, for a page in this thread. @param {number} tensor */
export function materialize(tensor) {
  return tensors.receive(materializeInPython(tensors.forPython(tensor)), null).buffer;
}

/** The decoding loops; undefined before the first one. @type {import('./decoding.js').Decodings | undefined} */
let decodings;

/** @typedef {import('./runtime.js').Report} Report */

/** Python's `pyruntime.bridge.requests`, once `start` was answered. @type {Promise<any> | undefined} */
let bridge;

/** Abort controllers of pending requests, by id. @type {Map<number, AbortController>} */
const underWay = new Map();

/**
 * Wrap a progress listener: the event 'expected', with the logits of a decoder's future runs, is passed to speculation, which creates its
 * sampler meanwhile.
 * @param {Report} report
 * @param {Promise<void> | null} loaded the speculation module, if it is needed
 * @param {import('./runs.js').Session} known
 * @returns {(event: any) => void}
 */
function expecting(report, loaded, known) {
  return (event) => {
    if (event.phase !== 'expected') report(event);
    else loaded?.then(() => {
      if (known.speculates) known.speculation ??= startSpeculation(internalSessions, known);
      known.speculation?.expect(event.logits);
    });
  };
}

/**
 * Call `pyruntime.bridge.requests.serve(function_, ...args)`, which returns `{value}` or `{error}` as JavaScript objects.
 * @param {string} function_
 * @param {...unknown} args
 */
async function callPython(function_, ...args) {
  const answer = await (await bridge).serve(function_, ...args);
  if (answer.error) throw answer.error;
  return answer.value;
}

/** @typedef {import('./runs.js').Request} Request */

/**
 * Like `callPython`, for a function that Python's `cancel` can end: its first argument is the request.
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
 * Create a session while its files load; a failed download is reported instead of its consequences.
 * @param {Loading} loading
 * @param {import('./runs.js').Session} known
 * @param {() => Promise<any>} work
 */
async function created(loading, known, work) {
  try {
    return await work();
  } catch (error) {
    known.speculates = false;
    await known.speculation?.end();
    await loading.failed();
    throw error;
  } finally {
    loading.stop();
  }
}

/** Tensors that are being received. @type {Map<number, Incoming>} */
const streams = new Map();

/**
 * Replace each stream's name by the tensor that will be received.
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

/** Receive the next bytes of a stream. @param {import('../api/protocol.js').Piece} message */
export function arrive({ stream, piece, failure }) {
  const incoming = streams.get(stream);
  if (piece) incoming?.push(piece);
  else incoming?.fail(failure ?? '');
  if (!piece || incoming?.complete) streams.delete(stream);
}

/** The last id of this side's requests, which count downwards; those of pages count upwards. */
let lastOwn = 0;

/** @returns {Request} */
function ownRequest() {
  lastOwn -= 1;
  return { id: lastOwn, signal: new AbortController().signal };
}

/** Creates and runs internal sessions: the samplers of speculation. @type {import('../speculation/chooser.js').Maker} */
const internalSessions = {
  get tensors() {
    return tensors;
  },
  known: (session) => sessions.get(session),
  model: async (options) => /** @type {Uint8Array<ArrayBuffer>} */ (await callPython('sampler', undefined, options)).slice().buffer,
  device: () => callPython('gpu_device'),
  async create(model) {
    const options = { extra: { 'pyruntime.host_work': 0 } };
    const { handle } = await methods.create({ model, externalData: [], options }, () => {}, { ...ownRequest(), spare: [] });
    return handle;
  },
  run: (args) => runs.run(args, ownRequest()),
  release: (session) => methods.release({ session }, () => {}, { ...ownRequest(), spare: [] }),
};

const runs = new Runs({
  get tensors() {
    return tensors;
  },
  known: (session) => sessions.get(session),
  call: callCancellable,
  internalSessions,
});

/**
 * @typedef {object} UnderWay
 * @property {number} id
 * @property {AbortSignal} signal
 * @property {ArrayBuffer[]} spare receives the buffers of streams, when they are no longer needed
 */

/**
 * Create a session.
 * @param {import('../api/protocol.js').CreateArguments} args
 * @param {Report} report
 * @param {Request} request
 * @param {RequestCache} [cache] cache mode of requests for its files
 */
async function create({ model, externalData, options, speculate = false }, report, request, cache) {
  const loading = new Loading(report, request.signal, cache);
  const { extra } = /** @type {any} */ (options);
  const speculationLoaded = speculate && extra?.['pyruntime.expects'] ? loadSpeculation() : null; // a decoder, whose outputs stay on the GPU
  /** @type {import('./runs.js').Session} */
  const known = { outputs: 0, replays: [], replaying: new Set(), spares: [], speculates: speculate, speculation: null, model: new ArrayBuffer(), tags: loading.tags };
  const told = expecting(report, speculationLoaded, known);
  const { replays, spares, ...info } = await created(loading, known, async () => {
    const [buffer, ...files] = await loading.open(model, externalData.map(({ data }) => data));
    known.model = buffer;
    const external = externalData.map(({ path }, index) => [path, files[index]]);
    const fetchRelative = loading.relativeTo(model);
    return loading.rightly(
      () => callCancellable(request, 'create', buffer, external, options, told, fetchRelative),
      (/** @type {{handle: number}} */ { handle }) => callPython('release', handle));
  });
  known.outputs = info.outputs.length;
  known.replays = replays;
  for (const made of spares) tensors.spare(made, known.spares);
  sessions.set(info.handle, known);
  await speculationLoaded;
  return info;
}

/** @type {Record<string, (args: any, report: Report, request: UnderWay) => Promise<any>>} */
const methods = {
  /** @param {import('../api/protocol.js').StartArguments} places */
  async start(places, report) {
    sessions.clear();
    bridge = startBridge(places, report, ended);
    if (sendDownloads) downloads.start(bridge, sendDownloads);
    makeMemoryBy((nbytes) => downloads.memory(nbytes));
    const python = await bridge;
    tensors = new Tensors({ share_memory: python.share_memory, dispose: python.forget });
    materializeInPython = python.materialize;
  },

  async ready() {
    await bridge;
  },

  /** Return the URLs of the files that Python was started from (scripts, archives, WebAssembly) and has loaded since. */
  async resources() {
    await bridge;
    const fetched = performance.getEntriesByType('resource').map(({ name }) => name);
    return [globalThis.location.href, ...new Set([...fetched, ...downloads.resources])];
  },

  /** @param {import('../api/protocol.js').CreateArguments} args */
  create: (args, report, request) => anew((cache) => create(args, report, request, cache)),

  /** @param {import('../api/protocol.js').RunArguments} args */
  async run(args, report, request) {
    const incoming = receive(args.feeds);
    try {
      return await runs.run(args, Object.assign(request, { report }));
    } finally {
      request.spare.push(...incoming.flatMap(({ complete, pieces }) => (complete ? pieces : [])));
    }
  },

  /** Start a decoding loop; return its number. @param {import('../api/protocol.js').DecodeArguments} args */
  async decode(args) {
    const [device, { Decodings }] = await Promise.all([callPython('gpu_device'), import('./decoding.js')]);
    decodings ??= new Decodings(1);
    return decodings.begin({ device, tensors, known: (session) => sessions.get(session), run: (...given) => runs.runFed(...given) }, args);
  },

  /** @param {import('../api/protocol.js').DecodeStepsArguments} args */
  decodeSteps: async (args, report, request) => decodings?.steps(args, request),

  /** @param {import('../api/protocol.js').DecodeEndArguments} args */
  decodeEnd: async (args) => decodings?.end(args),

  /** Serialize a session's plans, for the next visit. @param {import('../api/protocol.js').CachePlanArguments} args */
  async cachePlan({ session, before }) {
    const known = sessions.get(session);
    if (!known) return null;
    const { treeHash } = await import('../plans/treehash.js');
    known.hash ??= treeHash(known.model);
    const made = await callPython('cache_plan', session, await known.hash, before, treeHash);
    return made && { ...made, tags: known.tags };
  },

  /** @param {import('../api/protocol.js').ReleaseArguments} args */
  async release({ session }) {
    await sessions.get(session)?.speculation?.end();
    tensors?.release(sessions.get(session)?.spares ?? []);
    sessions.delete(session);
    await callPython('release', session);
  },

  /** @param {import('../api/protocol.js').CancelArguments} args */
  async cancel({ request }) {
    underWay.get(request)?.abort();
  },

  /** @param {import('../api/protocol.js').ReleaseArguments} args */
  async profile({ session }) {
    const known = sessions.get(session);
    if (known) {
      known.replays = []; // Python measures each dispatch, in memory that these replays use
      await Promise.allSettled(known.replaying);
    }
    return callPython('start_profiling', session);
  },

  /** Download a tensor's data. @param {import('../api/protocol.js').TensorArguments} args */
  async download({ tensor }) {
    return callPython('download', tensors.forPython(tensor));
  },

  /** Upload a tensor, which stays on the GPU. @param {import('../api/protocol.js').UploadArguments} args */
  async upload({ tensor }) {
    const { buffer: _, ...made } = tensors.receive(await callPython('upload', tensor), null);
    return made;
  },

  /** Release tensors' memory. @param {{tensors: number[]}} args */
  async dispose({ tensors: disposed }) {
    for (const tensor of disposed) {
      for (const { speculation } of sessions.values()) speculation?.disposed(tensor);
      tensors?.dispose(tensor);
    }
  },

  /** Return the number of tensors on the GPU that JavaScript holds. */
  async keptTensors() {
    return tensors.size;
  },

  /** @param {import('../api/protocol.js').CallArguments} args */
  async call({ function: function_, arguments: args }) {
    return callPython(function_, ...args);
  },
};

/**
 * Return the ArrayBuffers of a reply, to transfer them; each once, even if outputs share it.
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
 * @param {import('../api/protocol.js').Request} request
 * @param {(message: import('../api/protocol.js').Answer, transfer: ArrayBuffer[]) => void} post
 */
export async function answer({ id, method, arguments: args }, post) {
  const controller = new AbortController();
  /** @type {ArrayBuffer[]} */
  const spare = [];
  underWay.set(id, controller);
  try {
    const report = (/** @type {import('../pyruntime.js').ProgressEvent} */ progress) => post({ id, progress }, []);
    const value = await methods[method](args, report, { id, signal: controller.signal, spare });
    post({ id, value, spare }, [...buffers(value), ...spare]);
  } catch (thrown) {
    const { name, message, traceback } = /** @type {any} */ (thrown);
    post({ id, error: { name: name ?? 'Error', message: message ?? String(thrown), traceback }, spare }, spare);
  } finally {
    underWay.delete(id);
  }
}
