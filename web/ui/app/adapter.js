// @ts-check
import { requestAdapter } from '../../gpu/adapter.js';

/** @typedef {import('../../pyruntime.js').AdapterInfo & {isFallbackAdapter: boolean}} Adapter */

const SOFTWARE = /swiftshader|llvmpipe|lavapipe|basic render/i;

/** Return whether an adapter runs on a CPU. Firefox reports no such adapter. @param {Adapter} adapter */
export function isEmulated(adapter) {
  return adapter.isFallbackAdapter || SOFTWARE.test(Object.values(adapter).join(' '));
}

/** Return the browser's description of the adapter that models run on, which Python requests too. @returns {Promise<Adapter | null>} */
export async function readAdapter() {
  const adapter = await requestAdapter();
  if (!adapter) return null;
  const { vendor, architecture, device, description, isFallbackAdapter = false } = /** @type {any} */ (adapter.info);
  return { vendor, architecture, device, description, isFallbackAdapter };
}

/**
 * Return the adapter's name, and the rest of the browser's description.
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
