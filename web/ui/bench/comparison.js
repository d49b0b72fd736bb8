// @ts-check
/** Compare a model on several engines: create sessions first, then alternate a few runs at a time, so that all engines are disturbed equally. */
import { nameOf } from './engines.js';
import { rounded, spreadOf } from './statistics.js';

const ROUND = 3;
/** Milliseconds of warm-up, at least one run: sessions of pyruntime start with fallback kernels until the optimized ones are compiled. */
const WARM_UP_MS = 1000;

/** @typedef {{runs: number, seconds: number}} Effort runs of each engine, and seconds after which no further round starts */
/** @typedef {import('./statistics.js').Spread & {create_ms: number, first_ms: number}} Timed */
/** @typedef {{name: string, title: string, about: string, engines: Record<string, Timed | {error: string}>, max_difference: number | null, ratio: number | null}} Measured */
/** @typedef {import('./engines.js').Outputs} Outputs */

/** Return the largest difference of two results; null if their shapes differ. @param {Outputs} a @param {Outputs} b */
function difference(a, b) {
  let largest = 0;
  for (const [name, { data, dims }] of Object.entries(a)) {
    const other = b[name];
    if (!other || String(other.dims) !== String(dims)) return null;
    for (let i = 0; i < data.length; i++) largest = Math.max(largest, Math.abs(Number(data[i]) - Number(other.data[i])));
  }
  return largest;
}

/** A session of an engine for a model, and its measurements so far. */
class Entrant {
  /** @param {import('./engines.js').Engine} engine @param {AbortSignal} signal */
  constructor(engine, signal) {
    this.engine = engine;
    this.signal = signal;
    this.times = /** @type {number[]} */ ([]);
    this.error = '';
    this.outputs = /** @type {Outputs | null} */ (null);
    this.loaded = /** @type {import('./engines.js').Loaded | null} */ (null);
    this.create_ms = NaN;
    this.first_ms = NaN;
  }

  /** Run `work`; an error becomes the engine's result, and the other engines continue. @param {() => Promise<void>} work */
  async attempt(work) {
    if (this.error) return;
    this.signal.throwIfAborted();
    await work().catch((error) => { this.error = `${error?.name ?? 'Error'}: ${error?.message ?? error}`; });
  }

  /** @param {import('./models.js').Model} model @param {(doing: string) => void} tell */
  load({ url, inputs, fetches }, tell) {
    const name = nameOf(this.engine);
    return this.attempt(async () => {
      tell(`${name} loads the model`);
      const begin = performance.now();
      this.loaded = await this.engine.load(url, inputs(), fetches);
      this.create_ms = rounded(performance.now() - begin);
      tell(`${name}: first run`);
      this.outputs = await this.#run();
      this.first_ms = rounded(/** @type {number} */ (this.times.pop()));
      tell(`${name}: warm-up`);
      const until = performance.now() + WARM_UP_MS;
      do await this.#run(); while (performance.now() < until);
      this.times = [];
    });
  }

  /** Do several runs; after `until`, only the first. @param {number} count @param {number} until */
  round(count, until) {
    return this.attempt(async () => {
      for (let i = 0; i < count && (!this.times.length || performance.now() < until); i++) await this.#run();
    });
  }

  async #run() {
    this.signal.throwIfAborted();
    const begin = performance.now();
    const outputs = await /** @type {import('./engines.js').Loaded} */ (this.loaded).run();
    this.times.push(performance.now() - begin);
    return outputs;
  }

  /** @returns {Timed | {error: string}} */
  result() {
    return this.error ? { error: this.error } : { create_ms: this.create_ms, first_ms: this.first_ms, ...spreadOf(this.times) };
  }
}

/**
 * @param {import('./models.js').Model} model
 * @param {import('./engines.js').Engine[]} engines in the order of their first run
 * @param {Effort} effort
 * @param {AbortSignal} signal
 * @param {import('./measurement.js').Tell} tell
 * @returns {Promise<Measured>} `ratio`: onnxruntime-web's median divided by pyruntime's
 */
export async function compare(model, engines, effort, signal, tell) {
  await (await fetch(model.url)).arrayBuffer(); // so that all engines read it from the browser's cache
  const entrants = engines.map((engine) => new Entrant(engine, signal));
  try {
    for (const [i, entrant] of entrants.entries()) await entrant.load(model, (doing) => tell(i / entrants.length / 2, doing));
    const until = performance.now() + effort.seconds * 1000;
    for (let done = 0; done < effort.runs && (!done || performance.now() < until); done += ROUND) {
      const share = Math.max(done / effort.runs, 1 - (until - performance.now()) / effort.seconds / 1000);
      tell(0.5 + share / 2, `${done} of at most ${effort.runs} runs`);
      for (const entrant of entrants) await entrant.round(Math.min(ROUND, effort.runs - done), until);
    }
  } finally {
    for (const { loaded } of entrants) await loaded?.release();
  }
  signal.throwIfAborted();
  const results = Object.fromEntries(entrants.map((entrant) => [entrant.engine.name, entrant.result()]));
  const [own, peer] = ['pyruntime', 'onnxruntime_web'].map((name) => /** @type {any} */ (results[name])?.median_ms);
  const [first, second] = entrants.map(({ error, outputs }) => (error ? null : outputs));
  return { name: model.name, title: model.title, about: model.about, engines: results, max_difference: first && second ? difference(first, second) : null,
           ratio: own && peer ? rounded(peer / own) : null };
}
