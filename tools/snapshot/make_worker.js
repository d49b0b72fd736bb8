// Takes the picture: Python as web/snapshot.js will start it, with everything imported that sessions need.
import { placeLibraries, snapshotsFit, unpack } from '../web/snapshot.js';

const indexURL = new URL('../pyodide/', import.meta.url).href;

async function bytes(name) {
  return (await fetch(new URL(name, import.meta.url))).arrayBuffer();
}

async function gzip(data) {
  return new Response(new Blob([data]).stream().pipeThrough(new CompressionStream('gzip'))).arrayBuffer();
}

/**
 * Overwrite the memory that Python has freed: what was there compresses badly. `module` is Emscripten's.
 * Blocks beyond `top`, where nothing was yet, are left alone, so that memory does not grow.
 */
function wipe(module) {
  const top = module._PyMem_RawMalloc(1 << 23);
  module._PyMem_RawFree(top);
  const blocks = [];
  for (let size = 1 << 21; size >= 256; size >>= 1) {
    for (let block = module._PyMem_RawMalloc(size); block; block = module._PyMem_RawMalloc(size)) {
      blocks.push(block);
      if (block + size > top) break;
      module.HEAPU8.fill(0, block, block + size);
    }
  }
  for (const block of blocks) module._PyMem_RawFree(block);
}

async function make() {
  if (!snapshotsFit()) throw new Error('this browser has no WebAssembly garbage collection');
  const { libraries, warm, files } = await (await fetch(new URL('input.json', import.meta.url))).json();
  const bundle = new Uint8Array(await bytes('packages'));
  const compiled = libraries.map(({ path, file }) => ({ path, module: bytes(file).then(WebAssembly.compile) }));
  const main = WebAssembly.compileStreaming(fetch(`${indexURL}pyodide.asm.wasm`));
  const placed = await placeLibraries(indexURL, main, compiled, async ({ FS, API }) => unpack(FS, bundle, API.sitePackages));
  const { loadPyodide } = await import(`${indexURL}pyodide.mjs`);
  const pyodide = await loadPyodide({ indexURL, _makeSnapshot: true, stdout: () => {} });
  const { module } = placed;
  pyodide.FS.mkdirTree('/build');
  const run = async (name) => {
    pyodide.FS.writeFile(`/build/${name}`, new Uint8Array(await bytes(name)));
    pyodide.runPython(`import runpy; runpy.run_path("/build/${name}", run_name="__main__"); None`);
  };
  for (const name of files) {
    pyodide.FS.writeFile(`/build/${name}`, new Uint8Array(await bytes(name)));
  }
  await run(warm);
  wipe(module);
  const handles = Object.entries(module.LDSO.loadedLibsByHandle).filter(([handle]) => handle !== '0');
  // Pyodide wants its list as it was at the beginning; it finds the packages again when it starts.
  for (const name of Object.keys(pyodide.loadedPackages)) delete pyodide.loadedPackages[name];
  const snapshot = pyodide.makeMemorySnapshot();
  const manifest = {
    bytes: snapshot.length,
    table: module.wasmTable.length,
    libraries,
    handles: handles.map(([handle, { name }]) => [handle, name]),
  };
  const memory = await gzip(snapshot);
  await run('bytecode.py');
  self.postMessage({ manifest, memory, bytecode: pyodide.FS.readFile('/build/bytecode.zip').buffer });
}

make().catch((error) => self.postMessage({ error: String(error?.stack ?? error) }));
