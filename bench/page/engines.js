// @ts-check
/**
 * The engines with one interface: `start`, `create`, `run`, `counts`, `details`, `release`. The caller takes times.
 *
 * @typedef {Record<string, {type: string, data: any, dims: number[]}>} Feeds
 * @typedef {Record<string, {data: any, dims: readonly number[]}>} Outputs
 *
 * @typedef {object} Engine
 * @property {() => Promise<void>} start loads everything that does not depend on the model
 * @property {(url: string) => Promise<void>} create
 * @property {(feeds: Feeds) => void} feed makes the tensors that `run` takes
 * @property {() => Promise<Outputs>} run
 * @property {(count: number) => Promise<number[]>} [times] ms of so many runs, where the engine has a clock of its own
 * @property {() => Promise<any>} counts see counters.js
 * @property {() => Promise<object>} details what only this engine can tell
 * @property {() => Promise<void>} release
 */

const SITE = new URL('../', import.meta.url);

/** A session whose creation brings up whatever an engine brings up late. y = relu(x), x: float32 [4]. */
const SMALLEST_MODEL = new URL('smallest.onnx', import.meta.url).href;

/** As `ours`, with plans that are kept for the next visit: Python starts where there is none. @returns {Promise<Engine>} */
async function kept() {
  const { env, InferenceSession, Tensor } = await import(new URL('web/pyruntime.js', SITE).href);
  const options = { cachePlan: true };
  let started = false;
  const { Worker } = globalThis;
  globalThis.Worker = class extends Worker {
    /** @param {string | URL} url @param {WorkerOptions} [given] */
    constructor(url, given) {
      started ||= String(url).endsWith('/web/worker.js');
      super(url, given);
    }
  };
  let session = /** @type {any} */ (null);
  /** @type {Record<string, any>} */
  let tensors = {};
  return {
    async start() {
      const smallest = await InferenceSession.create(SMALLEST_MODEL, options);
      await smallest.run({ x: new Tensor('float32', new Float32Array(4), [4]) });
      await smallest.release();
    },
    async create(url) { session = await InferenceSession.create(url, options); },
    feed(feeds) {
      tensors = Object.fromEntries(Object.entries(feeds).map(([input, { type, data, dims }]) => (
        [input, new Tensor(type, data, dims)])));
    },
    run: () => session.run(tensors),
    counts: async () => ({}),
    details: async () => ({ kept: !started, version: env.versions?.common, timings: (await session.summary()).timings }),
    release: () => session.release(), // and what was planned is kept
  };
}

/** @param {{instrumented?: boolean}} [options] @returns {Promise<Engine>} */
async function ours({ instrumented = true } = {}) {
  const name = `counters-${Math.random()}`;
  if (instrumented) {
    globalThis.Worker = class extends Worker {
      /** @param {string | URL} url @param {WorkerOptions} [options] */
      constructor(url, options) {
        const counted = new URL('worker.js', import.meta.url);
        counted.searchParams.set('channel', name);
        super(String(url).endsWith('/web/worker.js') ? counted : url, options);
      }
    };
  }
  const { InferenceSession, Tensor, adapterInfo, preload } = await import(new URL('web/pyruntime.js', SITE).href);
  const channel = new BroadcastChannel(name);
  let session = /** @type {any} */ (null);
  /** @type {Record<string, any>} */
  let tensors = {};
  let last = 0;
  return {
    async start() {
      await preload();
      await (await InferenceSession.create(SMALLEST_MODEL)).release();
    },
    async create(url) { session = await InferenceSession.create(url); },
    feed(feeds) {
      tensors = Object.fromEntries(Object.entries(feeds).map(([input, { type, data, dims }]) => (
        [input, new Tensor(type, data, dims)])));
    },
    run: () => session.run(tensors),
    counts: () => new Promise((resolve) => {
      const request = ++last;
      channel.addEventListener('message', function listen({ data }) {
        if (data.answer !== request) return;
        channel.removeEventListener('message', listen);
        resolve(data.counts);
      });
      channel.postMessage({ request });
    }),
    async details() {
      const { memory, nodes, timings, warnings } = await session.summary();
      const hosted = nodes.filter((/** @type {any} */ node) => node.placement === 'host');
      return { planned: memory, timings, warnings, adapter: await adapterInfo(),
               host_nodes: hosted.map((/** @type {any} */ { op_type, reason }) => `${op_type}: ${reason}`) };
    },
    release: () => session.release(),
  };
}

/** onnxruntime-web's WebGPU bundle, set up as its documentation has it. */
async function onnxruntimeWeb() {
  const ort = await import(new URL('ort/ort.webgpu.bundle.min.mjs', SITE).href);
  ort.env.wasm.wasmPaths = { wasm: new URL('ort/ort-wasm-simd-threaded.asyncify.wasm', SITE).href };
  ort.env.wasm.numThreads = 1;
  ort.env.webgpu.powerPreference = 'high-performance';
  ort.env.logLevel = 'error';
  return ort;
}

/** @returns {Promise<Engine>} */
async function peer() {
  const counters = await import('./counters.js');
  const ort = await onnxruntimeWeb();
  const options = { executionProviders: ['webgpu'] };
  let session = /** @type {any} */ (null);
  /** @type {Record<string, any>} */
  let tensors = {};
  return {
    async start() { await (await ort.InferenceSession.create(SMALLEST_MODEL, options)).release(); },
    async create(url) { session = await ort.InferenceSession.create(url, options); },
    feed(feeds) {
      tensors = Object.fromEntries(Object.entries(feeds).map(([input, { type, data, dims }]) => (
        [input, new ort.Tensor(type, data, dims)])));
    },
    run: () => session.run(tensors),
    counts: async () => counters.snapshot(),
    details: async () => ({ version: ort.env.versions.web }),
    release: () => session.release(),
  };
}

/** This project from Python's side, in the worker: no JavaScript API, no messages between. @returns {Promise<Engine>} */
async function python() {
  const worker = new Worker(new URL('python_worker.js', import.meta.url), { type: 'module' });
  let last = 0;
  /** @type {(method: string, ...args: any[]) => Promise<any>} */
  const call = (method, ...args) => new Promise((resolve, reject) => {
    const id = ++last;
    worker.addEventListener('message', function listen({ data }) {
      if (data.id !== id) return;
      worker.removeEventListener('message', listen);
      if (data.error) reject(new Error(data.error));
      else resolve(data.value);
    });
    worker.postMessage({ id, method, args });
  });
  return {
    start: () => call('start'),
    create: (url) => call('create', url),
    feed: (feeds) => { call('feed', feeds); },
    run: () => call('run'),
    times: (count) => call('times', count),
    counts: () => call('counts'),
    details: () => call('details'),
    release: () => call('release'),
  };
}

/** @type {Record<string, (options?: any) => Promise<Engine>>} */
export const engines = { ours, kept, peer, python };

/** The modules of those engines that share an interface, by name. @type {Record<string, () => Promise<any>>} */
export const modules = { ours: () => import(new URL('web/pyruntime.js', SITE).href), peer: onnxruntimeWeb };
