// @ts-check

/**
 * The adapter that models run on, or where there is none that of compatibility mode (OpenGL ES 3.1), which has lower limits.
 * @returns {Promise<GPUAdapter | null>}
 */
export async function requestAdapter() {
  /** @type {GPURequestAdapterOptions} */
  const options = { powerPreference: 'high-performance' };
  return await navigator.gpu?.requestAdapter(options)
    ?? await navigator.gpu?.requestAdapter({ ...options, featureLevel: 'compatibility' }) ?? null;
}
