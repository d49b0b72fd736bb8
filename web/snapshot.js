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

/** What a gzip file holds. @param {Response} response @returns {ReadableStream<Uint8Array>} */
function gunzip({ body }) {
  return /** @type {ReadableStream<any>} */ (body).pipeThrough(new DecompressionStream('gzip'));
}

/** @param {string} url */
function compile(url) {
  const module = WebAssembly.compileStreaming(get(url));
  module.catch(() => {}); // awaited when it is needed
  return module;
}

/**
 * Read a gzip file into `target`, which it must fill. Unpacking keeps this thread busy: it begins after `start`, when
 * WebAssembly is compiled in other threads and this one would wait.
 * @param {Promise<Response>} source
 * @param {Promise<Uint8Array>} target
 * @param {Promise<unknown>} start
 */
async function fill(source, target, start) {
  const [response, bytes] = await Promise.all([source, target, start]);
  const reader = gunzip(response).getReader();
  let offset = 0;
  for (let step = await reader.read(); !step.done; step = await reader.read()) {
    bytes.set(step.value, offset);
    offset += step.value.length;
  }
  if (offset !== bytes.length) throw new Error(`${response.url} has ${offset} bytes, not ${bytes.length}`);
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
  const main = compile(`${indexURL}pyodide.asm.wasm`);
  const script = import(`${indexURL}pyodide.asm.js`);
  const memory = manifest.then((known) => new Uint8Array(known?.bytes ?? 0));
  const filled = fill(get(`${folder}memory.gz`), memory, script);
  const bundle = packages.then(async (data) => {
    await script;
    return new Response(gunzip(new Response(data))).arrayBuffer();
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
