// @ts-check
/** pyruntime and onnxruntime-web with a common interface. */
import { InferenceSession, Tensor, env, preload } from '../../pyruntime.js';

/**
 * @typedef {Record<string, {type: string, data: any, dims: number[]}>} Inputs
 * @typedef {Record<string, {data: any, dims: readonly number[]}>} Outputs
 * @typedef {{run: () => Promise<Outputs>, release: () => Promise<void>}} Loaded
 *
 * @typedef {object} Engine
 * @property {'pyruntime' | 'onnxruntime_web'} name
 * @property {string} version
 * @property {number} start_ms from nothing until a first session can be created
 * @property {(source: string | Uint8Array, inputs: Inputs, fetches: string[]) => Promise<Loaded>} load
 */

/**
 * Location of onnxruntime-web's files: `folder` is relative to this page, or on another server.
 * @typedef {object} Peer
 * @property {string} version
 * @property {string} folder
 * @property {Record<'module' | 'wasm', {name: string, bytes: number, integrity: string}>} files
 */

/** Return the name of an engine for people. @param {{name: string}} engine */
export function nameOf({ name }) {
  return name.replace('_', '-');
}

/** @returns {Promise<Peer>} */
export async function findPeer() {
  return (await fetch('peer.json')).json();
}

/** Return the host of the files; '' for that of the page. @param {Peer} peer */
export function hostOf({ folder }) {
  const { host } = new URL(folder, location.href);
  return host === location.host ? '' : host;
}

/** Return the loader of a library with onnxruntime-web's names. @param {any} library @param {object} [options] @returns {Engine['load']} */
function loader(library, options) {
  return async (source, inputs, fetches) => {
    const session = await library.InferenceSession.create(source, options);
    const feeds = Object.fromEntries(Object.entries(inputs).map(([name, { type, data, dims }]) => [name, new library.Tensor(type, data, dims)]));
    return { run: () => session.run(feeds, fetches), release: () => session.release() };
  };
}

/** @returns {Promise<Engine>} */
export async function startOwn() {
  const begin = performance.now();
  await preload();
  const load = loader({ InferenceSession, Tensor }, { executionProviders: ['webgpu'] });
  return { name: 'pyruntime', version: env.versions.pyruntime, start_ms: performance.now() - begin, load };
}

/** Import a module after verifying its bytes against `integrity`. @param {string} url @param {string} integrity */
async function verifiedModule(url, integrity) {
  await new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement('script'), { type: 'module', src: url, integrity, crossOrigin: 'anonymous' });
    script.addEventListener('load', resolve);
    script.addEventListener('error', () => reject(new Error(`${url} did not come, or is not the file of the release.`)));
    document.head.append(script);
  });
  return import(url);
}

/** @param {Peer} peer @returns {Promise<Engine>} */
export async function startPeer({ folder, version, files: { module, wasm } }) {
  const begin = performance.now();
  const base = new URL(folder, location.href);
  const binary = fetch(new URL(wasm.name, base), { integrity: wasm.integrity }).then((response) => response.arrayBuffer());
  const ort = await verifiedModule(new URL(module.name, base).href, module.integrity);
  Object.assign(ort.env.wasm, { wasmBinary: await binary, numThreads: 1 });
  ort.env.webgpu.powerPreference = 'high-performance';
  ort.env.logLevel = 'error';
  const load = loader(ort, { executionProviders: ['webgpu'], logSeverityLevel: 3 });
  return { name: 'onnxruntime_web', version, start_ms: performance.now() - begin, load };
}
