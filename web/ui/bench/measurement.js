// @ts-check
/** All measurements of the page, step by step, as an object that the visitor may save. */
import { isEmulated } from '../app/adapter.js';
import { describe } from './adapter.js';
import { compare } from './comparison.js';
import { deviceRates } from './device_rates.js';
import { startOwn, startPeer } from './engines.js';
import { productRate } from './products.js';
import { rounded } from './statistics.js';

const FORMAT = 'pyruntime-bench/1';

/** @typedef {(share: number, doing: string) => void} Tell the share of a step that is done, and what it is doing */
/**
 * @typedef {object} Result
 * @property {string} format
 * @property {string} date
 * @property {{user_agent: string, cores: number, memory_gb: number | null}} browser
 * @property {Record<string, any>} adapter
 * @property {Record<string, number>} limits
 * @property {string[]} features
 * @property {string[]} wgsl_features
 * @property {boolean} is_software
 * @property {Record<string, {version: string, start_ms: number}>} engines
 * @property {Awaited<ReturnType<typeof deviceRates>>} [device]
 * @property {Record<string, {side: number, gflop_per_s: number} | {error: string}>} products
 * @property {import('./comparison.js').Measured[]} models
 */

/** Return the result object before anything is measured. @param {GPUAdapter} adapter @returns {Result} */
function begun(adapter) {
  const described = describe(adapter);
  const { userAgent, hardwareConcurrency, deviceMemory = null } = /** @type {any} */ (navigator);
  return {
    format: FORMAT, date: new Date().toISOString(), browser: { user_agent: userAgent, cores: hardwareConcurrency, memory_gb: deviceMemory },
    ...described, is_software: isEmulated(/** @type {any} */ (described.adapter)), engines: {}, products: {}, models: [],
  };
}

/**
 * @param {object} wanted
 * @param {GPUAdapter} wanted.adapter
 * @param {import('./engines.js').Peer | null} wanted.peer null: pyruntime alone
 * @param {import('./models.js').Model[]} wanted.models
 * @param {import('./comparison.js').Effort} wanted.effort
 * @param {AbortSignal} signal
 * @param {(done: number, of: number, step: string, result: Result, doing: string) => void} report called before each step with an empty
 *   `doing`, and within long ones; `done` has a part of such a step
 * @returns {Promise<Result>}
 */
export async function measure({ adapter, peer, models, effort }, signal, report) {
  const result = begun(adapter);
  /** @type {import('./engines.js').Engine[]} */
  const engines = [];
  const start = async (/** @type {Promise<import('./engines.js').Engine>} */ starting) => {
    const engine = await starting;
    engines.push(engine);
    result.engines[engine.name] = { version: engine.version, start_ms: rounded(engine.start_ms) };
  };
  /** @type {[string, (tell: Tell) => Promise<void>][]} */
  const steps = [
    ['GPU: memory, dispatches, readback', async () => { result.device = await deviceRates(adapter, result.is_software, signal); }],
    ['Starting pyruntime', () => start(startOwn())],
    ...peer ? /** @type {typeof steps} */ ([['Starting onnxruntime-web', () => start(startPeer(peer))]]) : [],
    ['Matrix products', async (tell) => {
      for (const [i, engine] of engines.entries()) {
        const told = (/** @type {string} */ doing) => tell(i / engines.length, doing);
        result.products[engine.name] = await productRate(engine, signal, told).catch((error) => {
          signal.throwIfAborted();
          return { error: String(error?.message ?? error) };
        });
      }
    }],
    ...models.map((model, index) => /** @type {typeof steps[number]} */ ([`${model.title}: ${model.about}`, async (tell) => {
      const order = index % 2 ? [...engines].reverse() : engines;
      result.models.push(await compare(model, order, effort, signal, tell));
    }])),
  ];
  for (const [done, [step, work]] of steps.entries()) {
    signal.throwIfAborted();
    report(done, steps.length, step, result, '');
    await work((share, doing) => report(done + share, steps.length, step, result, doing));
  }
  report(steps.length, steps.length, '', result, '');
  return result;
}
