// @ts-check
/** What the browser says of its GPU. */

/** @param {any} named an object whose properties are getters of its class, as GPUSupportedLimits */
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
 * The adapter that models run on: its description, limits and features, and the features of its shading language.
 * @param {GPUAdapter} adapter
 */
export function describe(adapter) {
  return {
    adapter: properties(adapter.info), limits: properties(adapter.limits), features: [...adapter.features].sort(),
    wgsl_features: [...navigator.gpu.wgslLanguageFeatures ?? []].sort(),
  };
}
