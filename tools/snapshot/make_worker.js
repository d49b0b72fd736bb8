// Takes the picture: Python as web/snapshot/snapshot.js will start it, with everything imported that sessions need.
import { placeLibraries, snapshotsFit, unpack } from '../web/snapshot/snapshot.js';

const indexURL = new URL('../pyodide/', import.meta.url).href;

async function bytes(name) {
  return (await fetch(new URL(name, import.meta.url))).arrayBuffer();
}

async function gzip(blob) {
  return new Response(blob.stream().pipeThrough(new CompressionStream('gzip'))).arrayBuffer();
}

/** Bytes that Python's libraries may allocate before Python is restored, beyond what they allocated here. */
const SPARE = 1 << 20;
const WASM_PAGE = 1 << 16;
/** Runs of zeros of this length are left out of the picture. */
const HOLE = 1 << 14;

/**
 * The picture as web/snapshot/memory.js reads it: what Pyodide says of it, and the memory without long runs of zeros.
 * @param {Uint8Array} snapshot
 * @returns {{head: number, heap: number, runs: [number, number][], picture: Blob}}
 */
function withoutZeros(snapshot) {
  const head = new Uint32Array(snapshot.buffer, 0, 2)[1];
  const heap = snapshot.subarray(head);
  const words = new BigUint64Array(snapshot.buffer, head, heap.length / 8);
  const runs = [];
  for (let start = 0; start < heap.length; start += HOLE) {
    const end = Math.min(start + HOLE, heap.length);
    if (words.subarray(start / 8, end / 8).every((word) => word === 0n)) continue;
    const last = runs.at(-1);
    if (last && last[0] + last[1] === start) last[1] = end - last[0];
    else runs.push([start, end - start]);
  }
  const parts = runs.map(([offset, length]) => heap.subarray(offset, offset + length));
  return { head, heap: heap.length, runs, picture: new Blob([snapshot.subarray(0, head), ...parts]) };
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
  let low = 0;
  const placed = await placeLibraries(indexURL, main, compiled, async ({ FS, API, _sbrk }) => {
    unpack(FS, bundle, API.sitePackages);
    low = Math.ceil((_sbrk(0) + SPARE) / WASM_PAGE) * WASM_PAGE;
  });
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
  const { head, heap, runs, picture } = withoutZeros(snapshot);
  const manifest = {
    head,
    heap,
    low,
    runs,
    table: module.wasmTable.length,
    libraries,
    handles: handles.map(([handle, { name }]) => [handle, name]),
  };
  const memory = await gzip(picture);
  await run('bytecode.py');
  self.postMessage({ manifest, memory, bytecode: pyodide.FS.readFile('/build/bytecode.zip').buffer });
}

make().catch((error) => self.postMessage({ error: String(error?.stack ?? error) }));
