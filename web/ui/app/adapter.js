// @ts-check
import { requestAdapter } from '../../gpu/adapter.js';

/** @typedef {import('../../pyruntime.js').AdapterInfo & {isFallbackAdapter: boolean}} Adapter */

const SOFTWARE = /swiftshader|llvmpipe|lavapipe|basic render/i;

/** Whether an adapter is no hardware: a CPU plays it. Firefox names none. @param {Adapter} adapter */
export function isEmulated(adapter) {
  return adapter.isFallbackAdapter || SOFTWARE.test(Object.values(adapter).join(' '));
}

/** What the browser tells of the adapter that models run on, which Python asks for as well. @returns {Promise<Adapter | null>} */
export async function readAdapter() {
  const adapter = await requestAdapter();
  if (!adapter) return null;
  const { vendor, architecture, device, description, isFallbackAdapter = false } = /** @type {any} */ (adapter.info);
  return { vendor, architecture, device, description, isFallbackAdapter };
}

/**
 * The adapter's name, and the rest of what the browser tells about it.
 *
 * @param {Adapter | null} adapter
 * @returns {[string, string]}
 */
export function describeAdapter(adapter) {
  if (!adapter) return ['CPU', 'NumPy'];
  const { vendor, architecture, description } = adapter;
  const maker = [vendor, architecture].filter(Boolean).join(' ');
  const [kind, how] = isEmulated(adapter) ? ['Software adapter', 'WebGPU, emulated on the CPU'] : ['GPU', 'WebGPU'];
  return description ? [description, `${how}, ${maker}`] : [maker || kind, how];
}
