// @ts-check
/** @typedef {import('../pyruntime.js').AdapterInfo} AdapterInfo */

const SOFTWARE = /swiftshader|llvmpipe|lavapipe|basic render/i;

/** Whether an adapter is no hardware: a CPU plays it. @param {AdapterInfo} adapter */
export function isEmulated(adapter) {
  return SOFTWARE.test(Object.values(adapter).join(' '));
}

/** What the browser tells of the adapter that models run on, which Python asks for as well. @returns {Promise<AdapterInfo | null>} */
export async function readAdapter() {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) return null;
  const { vendor, architecture, device, description } = adapter.info;
  return { vendor, architecture, device, description };
}

/**
 * The adapter's name, and the rest of what the browser tells about it.
 *
 * @param {AdapterInfo | null} adapter
 * @returns {[string, string]}
 */
export function describeAdapter(adapter) {
  if (!adapter) return ['CPU', 'NumPy'];
  const { vendor, architecture, description } = adapter;
  const maker = [vendor, architecture].filter(Boolean).join(' ');
  const how = isEmulated(adapter) ? 'WebGPU, emulated on the CPU' : 'WebGPU';
  return description ? [description, `${how}, ${maker}`] : [maker || 'GPU', how];
}
