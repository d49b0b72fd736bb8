// @ts-check
/** Hosts Python and answers the requests of client.js: in a worker, or in the thread of the page. */

import { Loading } from './loading/loading.js';
import { Incoming } from './pieces.js';
import * as player from './player.js';
import { startPython, timed } from './runtime.js';

/** Runs kept by session: a model is usually run with few different input shapes. */
const REPLAYS = 8;

/**
 * What is known of each session: how many outputs its model has, the runs it can replay without Python, and those that
 * it is replaying.
 * @type {Map<number, {outputs: number, replays: import('./player.js').Replay[], replaying: Set<Promise<unknown>>}>}
 */
const sessions = new Map();

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

/**
 * `callPython` for a function that Python's `cancel` ends: its first argument is the request.
 * @param {{id: number, signal: AbortSignal}} request
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
 * What a replay can be fed: tensors with their data; null where there is anything else.
 * @param {Record<string, import('./protocol.js').WireValue>} feeds
 */
function onHost(feeds) {
  const fits = Object.values(feeds).every((value) => value && !('kind' in value));
  return fits ? /** @type {Record<string, import('./protocol.js').WireTensor>} */ (feeds) : null;
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
 * Run a session, without Python where it has run like this before.
 * @param {import('./protocol.js').RunArguments} args
 * @param {{id: number, signal: AbortSignal}} request
 */
async function run({ session, feeds, fetches, kept, options }, request) {
  const known = sessions.get(session);
  const tensors = Object.keys(kept).length ? null : onHost(feeds);
  if (tensors && known && !Object.keys(options).length) {
    for (const replay of known.replays) {
      const sizes = player.matches(replay, tensors, fetches, known.outputs);
      if (!sizes) continue;
      const replaying = player.run(replay, tensors, sizes);
      known.replaying.add(replaying);
      try {
        return await replaying;
      } catch {
        replay.live = false; // Python finds out why, and mends what can be mended
        break;
      } finally {
        known.replaying.delete(replaying);
      }
    }
  }
  for (const value of /** @type {any[]} */ (Object.values(feeds))) {
    if (value?.data instanceof Incoming) value.data = await value.data.whole();
  }
  const { outputs, replay } = await callCancellable(request, 'run', session, feeds, fetches, kept, options);
  if (known && replay) {
    const others = known.replays.filter((other) => other.live && other !== replay);
    known.replays = [replay, ...others].slice(0, REPLAYS);
  }
  return outputs;
}

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
    bridge = startPython(places, report).then((pyodide) => (
      timed(report, 'import', () => pyodide.pyimport('pyruntime.bridge'))));
    await bridge;
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
  async create({ model, externalData, options }, report, request) {
    const loading = new Loading(report, request.signal);
    const info = await created(loading, async () => {
      const [buffer, ...files] = await timed(report, 'model', () => (
        Promise.all([loading.model(model), ...externalData.map(({ data }) => loading.data(data))])));
      const external = externalData.map(({ path }, index) => [path, files[index]]);
      return callCancellable(request, 'create', buffer, external, options, report, loading.beside(model));
    });
    sessions.set(info.handle, { outputs: info.outputs.length, replays: [], replaying: new Set() });
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

  /** @param {import('./protocol.js').ReleaseArguments} args */
  async release({ session }) {
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
