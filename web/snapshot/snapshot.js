// @ts-check
/**
 * Restore Python from a memory snapshot, which the build takes after importing NumPy and pyruntime.
 *
 * The memory holds pointers into WebAssembly's function table, so NumPy's libraries must be loaded at the same addresses: in the same
 * order, before Python's memory is restored, by the same `placeLibraries` that the build uses. Assumptions that Pyodide does not guarantee
 * are checked: any difference is an error, and runtime.js then starts Python without the snapshot.
 */

import { importUrl } from './importing.js';
import { fetchNow, once, placeLazily } from './lazy_files.js';
import { located, scriptName, snapshotOf } from './memory.js';
import { decompress } from './zstd.js';

export { snapshotsFit } from './memory.js';

/** Reseeds the random number generators, which would otherwise be equal for all visitors. */
const AFTER_RESTORING = `
import sys
if "random" in sys.modules:
    sys.modules["random"].seed()
`;

/**
 * Intercept the next start of Pyodide: use `main` as its WebAssembly module, load `libraries` before Python starts, and wait for `ready`.
 *
 * Pyodide would compile its WebAssembly after its script has run; `main` is compiled earlier.
 * @param {string} indexURL
 * @param {Promise<WebAssembly.Module>} main
 * @param {{path: string, module: Promise<WebAssembly.Module>}[]} libraries
 * @param {(module: any) => Promise<void>} ready called with Emscripten's module, whose file system exists
 * @param {{memory?: WebAssembly.Memory, low?: number, version?: string}} [into] Python's memory, of which at most `low` bytes may be in use
 *   before it is restored (the standard library is then left out); and Pyodide's version, if it is not the site's
 * @returns {Promise<{module: any, options: object, restore: () => void}>} `module` once Python has it; `options` for `loadPyodide`;
 *   `restore` undoes the interception
 */
export async function placeLibraries(indexURL, main, libraries, ready, { memory, low = Infinity, version } = {}) {
  const script = await importUrl(located(indexURL + scriptName(version)));
  const global = /** @type {any} */ (globalThis);
  const create = script.default ?? global._createPyodideModule;
  const { instantiateStreaming } = WebAssembly;
  const { fetch } = global;
  const placed = {
    module: /** @type {any} */ (null),
    options: {},
    restore() {
      if (!script.default) global._createPyodideModule = create;
      WebAssembly.instantiateStreaming = instantiateStreaming;
      global.fetch = fetch;
    },
  };
  let fail = (/** @type {unknown} */ _) => {};
  /** Rejects with errors that Pyodide only writes to the console before it hangs. @type {Promise<never>} */
  const failed = new Promise((_, reject) => { fail = reject; });
  failed.catch(() => {}); // awaited together with Pyodide
  // Pyodide would also fetch the file of `main`.
  global.fetch = (/** @type {any} */ source, /** @type {any} */ options) => {
    const url = String(source);
    if (url === `${indexURL}pyodide.asm.wasm`) return Promise.resolve(new Response());
    if (memory && url === `${indexURL}python_stdlib.zip`) return Promise.resolve(new Response());
    const response = fetch(located(url) === url ? source : located(url), options);
    return url === `${indexURL}python_stdlib.zip` ? archive(url, response).catch((error) => { fail(error); throw error; }) : response;
  };
  WebAssembly.instantiateStreaming = async (_, imports) => {
    try {
      const module = await main;
      return { module, instance: await WebAssembly.instantiate(module, imports) };
    } catch (error) {
      fail(error);
      throw error;
    }
  };
  const createPyodideModule = (/** @type {any} */ settings) => new Promise((resolve, reject) => {
    failed.catch(reject);
    settings.preRun.push((/** @type {any} */ module) => {
      placed.module = module;
      module.addRunDependency('libraries');
      place(module, libraries).then(() => ready(module)).then(() => module.removeRunDependency('libraries'), reject);
    });
    if (memory) settings.wasmMemory = memory;
    create(settings).then((/** @type {any} */ module) => {
      const used = memory ? module._sbrk(0) : 0;
      if (used > low) throw new Error(`${used} bytes of memory are in use before Python is restored, not ${low} at most`);
      return module;
    }).then(resolve, reject);
  });
  if (script.default) placed.options = { createPyodideModule };
  else global._createPyodideModule = createPyodideModule;
  return placed;
}

/** Last bytes of a ZIP archive that contain its end-of-directory record, with a comment of at most 1 KB. */
const DIRECTORY_END = 22 + 1024;

/** Return a ZIP archive that is complete: its directory is at its end. @param {string} url @param {Promise<Response>} response */
async function archive(url, response) {
  const { ok, status, statusText, bytes } = await response.then(async (it) => (
    { ok: it.ok, status: it.status, statusText: it.statusText, bytes: new Uint8Array(await it.arrayBuffer()) }));
  if (!ok) throw new Error(`${url}: HTTP status ${status} ${statusText}`);
  const tail = String.fromCharCode(...bytes.subarray(-DIRECTORY_END));
  if (!tail.includes('PK\x05\x06')) throw new Error(`${url} is no whole zip archive`);
  return new Response(bytes);
}

/** @param {any} module @param {{path: string, module: Promise<WebAssembly.Module>}[]} libraries */
async function place(module, libraries) {
  const flags = { loadAsync: true, nodelete: true, allowUndefined: true };
  for (const { path, module: compiled } of libraries) {
    module.preloadedWasm[path] = await module.loadWebAssemblyModule(await compiled, flags, path, {});
  }
}

/**
 * Write a bundle of files: one line of JSON, `[[path, bytes], ...]`, then the contiguous bytes of the first `now` files.
 * @param {any} FS
 * @param {Uint8Array} bundle
 * @param {string} folder
 * @param {{now: number, read: () => Uint8Array}} [later] `read` returns the bytes of the other files, on first use
 */
export function unpack(FS, bundle, folder, { now, read } = { now: Infinity, read: () => bundle }) {
  const end = bundle.indexOf(10);
  let offset = end + 1;
  const folders = new Set();
  for (const [index, [path, size]] of JSON.parse(new TextDecoder().decode(bundle.subarray(0, end))).entries()) {
    const parent = path.slice(0, path.lastIndexOf('/'));
    if (!folders.has(parent)) FS.mkdirTree(`${folder}/${parent}`);
    folders.add(parent);
    if (index === now) offset = 0;
    const begin = offset;
    offset += size;
    if (index < now || !size) FS.writeFile(`${folder}/${path}`, bundle.subarray(begin, begin + size), { canOwn: true });
    else placeLazily(FS, `${folder}/${path}`, size, () => read().slice(begin, begin + size));
  }
}

/** Return a checksum of memory: FNV-1a of its words. @param {Uint32Array} words */
export function checksum(words) {
  let sum = 0x811c9dc5;
  for (let index = 0; index < words.length; index++) sum = Math.imul(sum ^ words[index], 0x01000193);
  return sum >>> 0;
}

/**
 * Add the bytes that WebAssembly and the libraries have written to the lower part of the memory, whose difference the snapshot has.
 * @param {Uint32Array} lower
 * @param {Uint32Array} fresh
 * @param {number} expected checksum of these bytes
 */
function complete(lower, fresh, expected) {
  if (checksum(fresh) !== expected) throw new Error('WebAssembly has begun with other memory than when the snapshot was taken');
  for (let index = 0; index < lower.length; index++) lower[index] ^= fresh[index];
}

/**
 * Start Python from a snapshot.
 * @param {string} folder folder of the snapshot
 * @param {string} indexURL folder of the Pyodide that it was taken from
 * @param {object} options options for `loadPyodide`
 * @param {(files: Promise<unknown>) => void} [arriving] receives the promise of NumPy's and pyruntime's files
 * @returns {Promise<any>} Pyodide, with NumPy and pyruntime imported; null if the build has no snapshot
 */
export async function restorePython(folder, indexURL, options, arriving = () => {}) {
  const files = snapshotOf(folder, indexURL);
  const pyodideModule = importUrl(located(`${indexURL}pyodide.mjs`));
  pyodideModule.catch(() => {}); // awaited below
  const [known, begun] = await Promise.all([files.manifest, files.memory]);
  if (!known || !begun) return null;
  const { head, low, fresh, now, later, library, archive: path, table, handles } = known;
  const { memory, lower, bundle, filled, libraries } = begun;
  arriving(filled);
  const decoder = await files.decoder;
  const read = once(() => decompress(decoder, fetchNow(located(`${folder}packages.bin`)), later));
  const placed = await placeLibraries(indexURL, files.main, libraries, async (module) => {
    await filled;
    complete(new Uint32Array(lower.buffer, head, low / 4), new Uint32Array(memory.buffer, 0, low / 4), fresh);
    unpack(module.FS, bundle, module.API.sitePackages, { now, read });
  }, { memory, low });
  try {
    const { loadPyodide } = await pyodideModule;
    const pyodide = await loadPyodide({ ...options, ...placed.options, indexURL, _loadSnapshot: lower });
    const { module } = placed;
    placeLazily(module.FS, path, library, () => fetchNow(located(`${indexURL}python_stdlib.zip`)));
    if (module.wasmTable.length !== table) throw new Error(`function table of ${module.wasmTable.length}, not ${table}`);
    for (const [handle, path] of handles) module.LDSO.loadedLibsByHandle[handle] = linked(module, path);
    pyodide.runPython(AFTER_RESTORING);
    module.API.config._loadSnapshot = undefined; // frees the copy, which Python has read
    return pyodide;
  } finally {
    placed.restore();
  }
}

/** The dynamic linker's record of a placed library. @param {any} module @param {string} path */
function linked(module, path) {
  const known = module.LDSO.loadedLibsByName[path];
  if (known) return known;
  return Object.assign(module.newDSO(path, undefined, module.preloadedWasm[path]), { global: false });
}
