// @ts-check
/**
 * Tokens per second of TextGenerator, over the length of the context. `generated` has the result, which is posted to
 * /result/NAME where the address asks for it. Parameters of the address:
 *
 *     lib       module of this project (../web/pyruntime.js)
 *     models    folders, comma separated; a name without a slash is /models/NAME/ (tiny)
 *     prompt    tokens of the prompt (100)
 *     tokens    to be written (400)
 *     runs      texts of each model; the first one compiles and allocates (2)
 *     every     tokens of a stretch whose rate is told (100)
 *     options   JSON of more options of `generate`, for instance {"temperature":0.8,"topK":40,"seed":1}
 *     step      1: one token after the other, chosen in JavaScript, to compare with
 *     page      1: Python in the page's thread
 *     disable   passes and kernels to do without (docs/SWITCHES.md)
 *     post      1: POST the result to /result/NAME
 *     name      NAME (generate)
 *
 * A folder without a tokenizer gets one in which each token is a character.
 */

const parameters = new URL(location.href).searchParams;
const number = (/** @type {string} */ name, /** @type {number} */ usual) => Number(parameters.get(name) ?? usual);

/** The character of token 0, and those after it: planes that no surrogate is in. */
const FIRST_CHARACTER = 0x20000;

const median = (/** @type {number[]} */ values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const rounded = (/** @type {number} */ value) => Math.round(value * 1000) / 1000;

/** tokenizer.json with a character for each token. @param {number} vocabulary */
function characters(vocabulary) {
  const vocab = Object.fromEntries(Array.from({ length: vocabulary }, (_, id) => [String.fromCodePoint(FIRST_CHARACTER + id), id]));
  return {
    version: '1.0', added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: { type: 'Fuse' },
    model: { type: 'BPE', vocab, merges: [], unk_token: null, fuse_unk: false, byte_fallback: false },
  };
}

/** A folder of the server's, as TextGenerator reads it. @param {string} base @param {object} tokenizer */
function folderAt(base, tokenizer) {
  /** @type {Record<string, object>} */
  const made = { 'tokenizer.json': tokenizer, 'tokenizer_config.json': {} };
  return {
    name: base,
    has: async (/** @type {string} */ path) => (await fetch(base + path, { method: 'HEAD' })).ok,
    read: async (/** @type {string} */ path) => {
      if (path in made) return new Blob([JSON.stringify(made[path])]);
      const response = await fetch(base + path);
      return response.ok ? response.blob() : null;
    },
  };
}

/**
 * One text.
 * @param {any} generator
 * @param {string} prompt
 * @param {number} length tokens of the prompt
 * @param {object} options
 */
async function write(generator, prompt, length, options) {
  const every = number('every', 100);
  /** @type {number[]} */
  const ids = [];
  const times = [performance.now()];
  for await (const { id } of generator.generate(prompt, options)) {
    ids.push(id);
    times.push(performance.now());
  }
  const stretches = [];
  for (let from = 1; from < ids.length; from += every) {
    const to = Math.min(from + every, ids.length);
    const ms = (times[to] - times[from]) / (to - from);
    stretches.push({ context: length + from, tokens: to - from, ms: rounded(ms), tokens_per_s: rounded(1000 / ms) });
  }
  return {
    first_ms: rounded(times[1] - times[0]),
    ms: rounded((times[ids.length] - times[1]) / (ids.length - 1)),
    tokens_per_s: rounded((1000 * (ids.length - 1)) / (times[ids.length] - times[1])),
    median_stretch_ms: median(stretches.map(({ ms }) => ms)),
    stretches,
    ids,
  };
}

/** @param {any} lib @param {string} model */
async function measure(lib, model) {
  const base = new URL(model.includes('/') ? model.replace(/\/*$/, '/') : `/models/${model}/`, location.href).href;
  const config = await (await fetch(`${base}genai_config.json`)).json();
  const vocabulary = config.model.vocab_size;
  const given = await fetch(`${base}tokenizer.json`, { method: 'HEAD' });
  const folder = given.ok ? base : folderAt(base, characters(vocabulary));
  const begin = performance.now();
  const extra = parameters.get('disable') ? { 'pyruntime.disable': parameters.get('disable') } : {};
  const generator = await lib.TextGenerator.create(folder, { sessionOptions: { extra } });
  const result = { model, create_ms: rounded(performance.now() - begin), prompt: number('prompt', 100), tokens: number('tokens', 400) };
  try {
    // The ids of a prompt that other engines can be given, too.
    const ids = Array.from({ length: result.prompt }, (_, i) => ((i * 7919 + 13) % (vocabulary - 3)) + 3);
    const prompt = given.ok ? generator.decode(ids) : ids.map((id) => String.fromCodePoint(FIRST_CHARACTER + id)).join('');
    const options = {
      temperature: 0, maxNewTokens: result.tokens, endTokens: [], keepPrompt: false, ...JSON.parse(parameters.get('options') ?? '{}'),
      ...(parameters.get('step') ? { processLogits() {} } : {}),
    };
    const runs = [];
    for (let run = 0; run < number('runs', 2); run++) {
      runs.push(await write(generator, prompt, generator.encode(prompt).length, options));
      log(`${model} run ${run + 1}: ${runs[run].tokens_per_s} tokens/s, first token after ${runs[run].first_ms} ms`);
    }
    return { ...result, runs };
  } finally {
    await generator.release();
  }
}

/** @param {string} line */
function log(line) {
  /** @type {HTMLElement} */ (document.getElementById('log')).append(`${line}\n`);
  console.log(line);
}

async function everything() {
  /** @type {Record<string, any>} */
  const out = { lib: parameters.get('lib') ?? '../web/pyruntime.js', agent: navigator.userAgent, isolated: globalThis.crossOriginIsolated, results: [] };
  try {
    const lib = await import(new URL(out.lib, location.href).href);
    if (parameters.get('page')) lib.env.worker = false;
    for (const model of (parameters.get('models') ?? 'tiny').split(',')) {
      try {
        out.results.push(await measure(lib, model));
      } catch (error) {
        const told = String(/** @type {any} */ (error)?.stack ?? error).slice(0, 2000);
        out.results.push({ model, error: told });
        out.error ??= told;
        log(told);
      }
    }
    out.adapter = await lib.adapterInfo();
  } catch (error) {
    out.error = String(/** @type {any} */ (error)?.stack ?? error);
    log(out.error);
  }
  document.title = 'done';
  if (parameters.get('post')) {
    await fetch(`/result/${parameters.get('name') ?? 'generate'}`, { method: 'POST', body: JSON.stringify(out) });
  }
  return out;
}

globalThis.generated = everything();
