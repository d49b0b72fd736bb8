// @ts-check
/** The browser's description of its GPU. */

/** @param {any} named an object whose class has its properties as getters, such as GPUSupportedLimits */
function properties(named) {
  /** @type {Record<string, any>} */
  const found = {};
  for (const name in named) {
    const value = named[name];
    if (typeof value === 'number' || typeof value === 'string' || typeof value === 'boolean') found[name] = value;
  }
  return found;
}

/**
 * Return the description, limits and features of the adapter that models run on, and the WGSL language features.
 * @param {GPUAdapter} adapter
 */
export function describe(adapter) {
  return {
    adapter: properties(adapter.info), limits: properties(adapter.limits), features: [...adapter.features].sort(),
    wgsl_features: [...navigator.gpu.wgslLanguageFeatures ?? []].sort(),
  };
}
