// @ts-check
/**
 * Python from a picture of its memory, taken by the build when NumPy and pyruntime had been imported.
 *
 * The memory holds pointers into WebAssembly's function table, so NumPy's libraries must be where they were: they are
 * loaded in the same order before Python's memory is restored, by the same `placeLibraries` that the build uses. What
 * Pyodide does not promise is checked: any difference is an error, and runtime.js then starts Python the plain way.
 */

/**
 * @typedef {object} Manifest what the build says of a snapshot; files are relative to it
 * @property {number} bytes of the snapshot, unpacked
 * @property {number} brotli bytes of `memory.br`; 0 where the build made none
 * @property {number} table entries of the function table when it was taken
 * @property {{path: string, file: string}[]} libraries in the order in which they are loaded
 * @property {[string, string][]} handles of the dynamic linker: its number, and the library's path
 */

/** A type of WebAssembly's garbage collection: Python's calls use it where there is one, and the snapshot relies on it. */
const GC_MODULE = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 95, 1, 120, 0]);

/** Not everybody shall draw the same numbers. */
const AFTER_RESTORING = `
import sys
if "random" in sys.modules:
    sys.modules["random"].seed()
`;

/** Whether this browser's Python would be like the one that was pictured. Pyodide treats iOS apart. */
export function snapshotsFit() {
  const { userAgent = '', platform = '', maxTouchPoints = 0 } = globalThis.navigator ?? {};
  const ios = /iPad|iPhone|iPod/.test(userAgent) || (platform === 'MacIntel' && maxTouchPoints > 1);
  return !ios && typeof DecompressionStream !== 'undefined' && WebAssembly.validate(GC_MODULE);
}

/**
 * Let the next Python be `main`, load `libraries` before it starts, and wait for `ready`.
 *
 * Pyodide would compile its WebAssembly when its script has run; `main` is under way before.
 * @param {string} indexURL
 * @param {Promise<WebAssembly.Module>} main
 * @param {{path: string, module: Promise<WebAssembly.Module>}[]} libraries
 * @param {(module: any) => Promise<void>} ready given Emscripten's module, whose file system is there
 * @returns {Promise<{module: any, restore: () => void}>} `module` when Python has it; `restore` undoes the interception
 */
export async function placeLibraries(indexURL, main, libraries, ready) {
  await import(`${indexURL}pyodide.asm.js`);
  const global = /** @type {any} */ (globalThis);
  const create = global._createPyodideModule;
  const { instantiateStreaming } = WebAssembly;
  const placed = {
    module: /** @type {any} */ (null),
    restore() {
      global._createPyodideModule = create;
      WebAssembly.instantiateStreaming = instantiateStreaming;
    },
  };
  WebAssembly.instantiateStreaming = async (response, imports) => {
    Promise.resolve(response).then(({ body }) => body?.cancel(), () => {});
    const module = await main;
    return { module, instance: await WebAssembly.instantiate(module, imports) };
  };
  global._createPyodideModule = (/** @type {any} */ settings) => new Promise((resolve, reject) => {
    settings.preRun.push((/** @type {any} */ module) => {
      placed.module = module;
      module.addRunDependency('libraries');
      place(module, libraries).then(() => ready(module)).then(() => module.removeRunDependency('libraries'), reject);
    });
    create(settings).then(resolve, reject);
  });
  return placed;
}

/** @param {any} module @param {{path: string, module: Promise<WebAssembly.Module>}[]} libraries */
async function place(module, libraries) {
  const flags = { loadAsync: true, nodelete: true, allowUndefined: true };
  for (const { path, module: compiled } of libraries) {
    module.preloadedWasm[path] = await module.loadWebAssemblyModule(await compiled, flags, path, {});
  }
}

/**
 * Write a bundle of files: one line of JSON, `[[path, bytes], ...]`, then the files' bytes back to back.
 * @param {any} FS
 * @param {Uint8Array} bundle
 * @param {string} folder
 */
export function unpack(FS, bundle, folder) {
  const end = bundle.indexOf(10);
  let offset = end + 1;
  const folders = new Set();
  for (const [path, size] of JSON.parse(new TextDecoder().decode(bundle.subarray(0, end)))) {
    const parent = path.slice(0, path.lastIndexOf('/'));
    if (!folders.has(parent)) FS.mkdirTree(`${folder}/${parent}`);
    folders.add(parent);
    FS.writeFile(`${folder}/${path}`, bundle.subarray(offset, offset + size), { canOwn: true });
    offset += size;
  }
}

/** @param {string} url @returns {Promise<Response>} */
async function get(url) {
  const response = await fetch(url);
  if (!response.ok || !response.body) throw new Error(`${url}: HTTP status ${response.status}`);
  return response;
}

/** @typedef {(response: Response) => ReadableStream<Uint8Array>} Unpack what a file holds, from its response */

/** @param {Response} response @param {string} [format] */
function decompress({ body }, format = 'gzip') {
  const unpacking = new DecompressionStream(/** @type {any} */ (format));
  return /** @type {ReadableStream<any>} */ (body).pipeThrough(unpacking);
}

/** @type {Unpack} */
const asItComes = ({ body }) => /** @type {ReadableStream<Uint8Array>} */ (body);

function knowsBrotli() {
  try {
    return Boolean(new DecompressionStream(/** @type {any} */ ('brotli')));
  } catch {
    return false;
  }
}

/**
 * How `memory.br` is unpacked: by the browser where the server says `Content-Encoding: br`, and not at all where it is kept
 * as it was then (service-worker.js); null where it is not what the build wrote, or nobody unpacks it.
 * @param {Response | null} head of `memory.br` @param {Manifest} manifest
 * @returns {Unpack | null}
 */
function unpackingOf(head, { bytes, brotli }) {
  if (!head?.ok || !brotli) return null;
  const encoding = head.headers.get('Content-Encoding');
  const length = Number(head.headers.get('Content-Length'));
  if (encoding ? encoding === 'br' && length === brotli : length === bytes) return asItComes;
  return !encoding && length === brotli && knowsBrotli() ? (response) => decompress(response, 'brotli') : null;
}

/** @param {string} url */
function compile(url) {
  const module = WebAssembly.compileStreaming(get(url));
  module.catch(() => {}); // awaited when it is needed
  return module;
}

/**
 * Read a file into `target`, which it must fill. Unpacking keeps this thread busy: it begins after `start`, when
 * WebAssembly is compiled in other threads and this one would wait.
 * @param {Promise<Response>} source
 * @param {Unpack} unpack
 * @param {Uint8Array} bytes
 * @param {Promise<unknown>} start
 */
async function fill(source, unpack, bytes, start) {
  const [response] = await Promise.all([source, start]);
  const reader = unpack(response).getReader();
  let offset = 0;
  for (let step = await reader.read(); !step.done; step = await reader.read()) {
    bytes.set(step.value, offset);
    offset += step.value.length;
  }
  if (offset !== bytes.length) throw new Error(`${response.url} has ${offset} bytes, not ${bytes.length}`);
}

/**
 * Read the snapshot from `memory.br` where that can be, from `memory.gz` otherwise.
 * @param {string} folder
 * @param {Manifest} manifest
 * @param {Promise<Response | null>} head of `memory.br`
 * @param {Uint8Array} bytes
 * @param {Promise<unknown>} start
 */
async function fillMemory(folder, manifest, head, bytes, start) {
  const unpack = unpackingOf(await head, manifest);
  if (unpack) {
    try {
      await fill(get(`${folder}memory.br`), unpack, bytes, start);
      return;
    } catch (error) {
      console.info(`pyruntime: memory.gz in place of memory.br: ${/** @type {Error} */ (error).message}`);
    }
  }
  await fill(get(`${folder}memory.gz`), decompress, bytes, start);
}

/**
 * Start Python.
 * @param {string} folder of the snapshot
 * @param {string} indexURL of the Pyodide it was taken from
 * @param {Promise<ArrayBuffer>} packages `packages.gz` of the snapshot
 * @param {object} options for `loadPyodide`
 * @returns {Promise<any>} Pyodide, NumPy and pyruntime imported; null where the build took no snapshot
 */
export async function restorePython(folder, indexURL, packages, options) {
  const manifest = get(`${folder}manifest.json`).then((response) => (
    /** @type {Promise<Manifest | null>} */ (response.json())));
  const head = fetch(`${folder}memory.br`, { method: 'HEAD' }).catch(() => null);
  const main = compile(`${indexURL}pyodide.asm.wasm`);
  const script = import(`${indexURL}pyodide.asm.js`);
  const memory = manifest.then((known) => new Uint8Array(known?.bytes ?? 0));
  const filled = Promise.all([manifest, memory]).then(([known, bytes]) => (
    known && fillMemory(folder, known, head, bytes, script)));
  const bundle = packages.then(async (data) => {
    await script;
    return new Response(decompress(new Response(data))).arrayBuffer();
  });
  const pyodideModule = import(`${indexURL}pyodide.mjs`);
  for (const promise of [memory, filled, bundle, pyodideModule]) promise.catch(() => {}); // awaited below
  const known = await manifest;
  if (!known) return null;
  const { libraries, table, handles } = known;
  const compiled = libraries.map(({ path, file }) => ({ path, module: compile(`${folder}${file}`) }));
  const placed = await placeLibraries(indexURL, main, compiled, async (module) => {
    unpack(module.FS, new Uint8Array(await bundle), module.API.sitePackages);
    await filled;
  });
  try {
    const { loadPyodide } = await pyodideModule;
    const pyodide = await loadPyodide({ ...options, indexURL, _loadSnapshot: memory });
    const { module } = placed;
    if (module.wasmTable.length !== table) throw new Error(`function table of ${module.wasmTable.length}, not ${table}`);
    for (const [handle, path] of handles) module.LDSO.loadedLibsByHandle[handle] = linked(module, path);
    pyodide.runPython(AFTER_RESTORING);
    module.API.config._loadSnapshot = undefined; // its memory is Python's now
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
