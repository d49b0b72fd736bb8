// @ts-check
/** Figures and names of a result as text. */
import { formatTime } from '../app/format.js';

/** @typedef {import('./measurement.js').Result} Result */

/** Format a time: '0.84 ms'; below a tenth of a millisecond in microseconds. @param {number} ms */
export function timeText(ms) {
  return ms < 0.1 ? `${three(ms * 1000)} µs` : formatTime(ms);
}

/** @param {number} value */
function three(value) {
  return String(Number(value.toPrecision(3)));
}

/** @param {NonNullable<Result['device']>} device */
export function bandwidthText({ bandwidth_gb_per_s: rate }) {
  return `${three(rate)} GB/s`;
}

/** @param {Result['products'][string] | undefined} product */
export function productText(product) {
  if (!product) return '–';
  if ('error' in product) return 'failed';
  const rate = product.gflop_per_s;
  return rate >= 1000 ? `${three(rate / 1000)} TFLOP/s` : `${three(rate)} GFLOP/s`;
}

/** Return the GPU's name, as far as the browser reports it. @param {Pick<Result, 'adapter' | 'is_software'>} result */
export function gpuOf({ adapter, is_software: isSoftware }) {
  const { description, device, vendor, architecture } = adapter;
  const name = description || [vendor, device || architecture].filter(Boolean).join(' ');
  if (isSoftware) return name ? `${name} (software)` : 'Software adapter';
  return name || 'A GPU that the browser does not name';
}

/** Return the browser and its system: 'Chrome 156, Linux'. @param {Pick<Result, 'browser'>} result */
export function browserOf({ browser: { user_agent: agent } }) {
  const names = /** @type {[RegExp, string][]} */ ([
    [/Edg\/(\d+)/, 'Edge'], [/Firefox\/(\d+)/, 'Firefox'], [/Chrome\/(\d+)/, 'Chrome'], [/Version\/(\d+)[\d.]* .*Safari/, 'Safari']]);
  const systems = /** @type {[RegExp, string][]} */ ([
    [/Android/, 'Android'], [/iPhone|iPad/, 'iOS'], [/Windows/, 'Windows'], [/Mac OS X/, 'macOS'], [/CrOS/, 'ChromeOS'], [/Linux/, 'Linux']]);
  const found = names.map(([pattern, name]) => [name, agent.match(pattern)?.[1]]).find(([, version]) => version);
  const system = systems.find(([pattern]) => pattern.test(agent))?.[1];
  return [found ? found.join(' ') : 'unknown browser', system].filter(Boolean).join(', ');
}
