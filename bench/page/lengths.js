// @ts-check
/**
 * What lengths cost: `bench` has a run of each part. The import map of the page says whose runtime
 * 'onnxruntime-web/webgpu' is.
 *
 * Shapes of a run: {name: [type, dims]}; its inputs are drawn from a seed.
 */

const median = (/** @type {number[]} */ values) => [...values].sort((a, b) => a - b)[values.length >> 1];

/** @param {any} lib @param {Record<string, [string, number[]]>} shapes */
function feeds(lib, shapes) {
  let seed = 1;
  const draw = () => {
    seed = (seed * 1664525 + 1013904223) % 2 ** 32;
    return seed / 2 ** 32;
  };
  return Object.fromEntries(Object.entries(shapes).map(([name, [type, dims]]) => {
    const size = dims.reduce((a, b) => a * b, 1);
    const data = type === 'int64' ? BigInt64Array.from({ length: size }, () => BigInt(1 + Math.floor(draw() * 20)))
      : Float32Array.from({ length: size }, () => draw() - 0.5);
    return [name, new lib.Tensor(type, data, dims)];
  }));
}

/** Milliseconds of a run. @param {any} session @param {object} given */
async function timed(session, given) {
  const begin = performance.now();
  await session.run(given);
  return performance.now() - begin;
}

const GPU = { device: 'webgpu', dtype: 'fp32' };
const PROMPTS = ['the city of paris', 'what is it and where is the movie', 'we love this great film'];

/** A pipeline of text. @param {any} t @param {string} task @param {string} repository */
async function telling(t, task, repository) {
  const pipeline = await t.pipeline(task, repository, GPU);
  return (/** @type {number} */ n, /** @type {object} */ options) => pipeline(PROMPTS[n % PROMPTS.length], options);
}

/** Ids for a second of sound: the random ones of a model make no text. @param {any} t @param {string} task @param {string} repository */
async function hearing(t, task, repository) {
  const processor = await t.AutoProcessor.from_pretrained(repository);
  const model = await t.WhisperForConditionalGeneration.from_pretrained(repository, GPU);
  const sound = Float32Array.from({ length: 16000 }, (_, i) => Math.sin(i / 5) * 0.5 + Math.sin(i / 13) * 0.3);
  return async (/** @type {number} */ n, /** @type {object} */ options) => {
    const ids = await model.generate({ ...await processor(sound), ...options });
    return [...ids.data].map(Number);
  };
}

const parts = {
  /**
   * Runs at lengths that never came, each followed by runs of the same.
   * @param {{url: string, warm: any[], fresh: any[], again: number}} args
   */
  async lengths({ url, warm, fresh, again }) {
    const lib = await import('onnxruntime-web/webgpu');
    const session = await lib.InferenceSession.create(url);
    for (const shapes of warm) await session.run(feeds(lib, shapes));
    const found = [];
    for (const shapes of fresh) {
      const given = feeds(lib, shapes);
      const first = await timed(session, given);
      const repeated = [];
      for (let n = 0; n < again; n += 1) repeated.push(await timed(session, given));
      found.push({ first, again: median(repeated) });
    }
    await session.release();
    return found;
  },

  /**
   * Runs of one size through a plan for many, and through one for just that size, in turn.
   * @param {{url: string, others: any[], shapes: any, runs: number}} args
   */
  async shared({ url, others, shapes, runs }) {
    const lib = await import('onnxruntime-web/webgpu');
    const open = await lib.InferenceSession.create(url);
    for (const other of others) await open.run(feeds(lib, other));
    const own = await lib.InferenceSession.create(url);
    const given = feeds(lib, shapes);
    /** @type {Record<string, number[]>} */
    const taken = { shared: [], concrete: [] };
    for (let n = -3; n < runs; n += 1) {
      const order = n % 2 ? [open, own] : [own, open];
      for (const session of order) {
        const ms = await timed(session, given);
        if (n >= 0) taken[session === open ? 'shared' : 'concrete'].push(ms);
      }
    }
    await open.release();
    await own.release();
    return { shared: median(taken.shared), concrete: median(taken.concrete), runs: taken };
  },

  /**
   * Texts of a pipeline of transformers.js: the first of the page, and others. Each is of exactly `tokens` tokens.
   * @param {{task: string, repository: string, tokens: number, texts: number, wasm: string | null}} args
   */
  async generate({ task, repository, tokens, texts, wasm }) {
    const runtime = await import('onnxruntime-web/webgpu');
    if (wasm) runtime.env.wasm.wasmPaths = { wasm: new URL(wasm, document.baseURI).href };
    const t = await import('@huggingface/transformers');
    Object.assign(t.env, { allowRemoteModels: false, allowLocalModels: true, localModelPath: '/models/', useBrowserCache: false });
    const begin = performance.now();
    const write = await (task === 'automatic-speech-recognition' ? hearing : telling)(t, task, repository);
    const loaded = performance.now() - begin;
    const ms = [];
    let text = '';
    for (let n = 0; n < texts; n += 1) {
      const start = performance.now();
      const made = await write(n, { max_new_tokens: tokens, min_new_tokens: tokens, do_sample: false });
      ms.push(performance.now() - start);
      if (!n) text = JSON.stringify(made);
    }
    return { loaded, ms, text };
  },
};

Object.assign(globalThis, { bench: parts });
