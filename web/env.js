// @ts-check
/** Settings of the runtime, read when the first session is created. */

export const version = '0.1.0';
const pyodideVersion = '0.29.5';

/** @type {import('./pyruntime.js').Env} */
export const env = {
  pyodideUrl: undefined,
  wheelUrl: new URL(`../pyruntime-${version}-py3-none-any.whl`, import.meta.url).href,
  versions: { pyruntime: version, pyodide: pyodideVersion },
  wasm: {},
  webgpu: {},
};

/**
 * The folders that may hold Pyodide, in the order in which they are tried: the one that `env.pyodideUrl` names and no
 * other, else the copy that `dev.py build` puts beside web/, else Pyodide's CDN at the exact version.
 * @returns {string[]}
 */
export function pyodideUrls() {
  if (env.pyodideUrl) {
    return [new URL(env.pyodideUrl.replace(/\/?$/, '/'), globalThis.location.href).href];
  }
  const vendored = new URL('../pyodide/', import.meta.url).href;
  return [vendored, `https://cdn.jsdelivr.net/pyodide/v${pyodideVersion}/full/`];
}
