// Takes the snapshot: Python as web/snapshot/snapshot.js will start it, with all imports that sessions need.
import { checksum, placeLibraries, snapshotsFit, unpack } from '../web/snapshot/snapshot.js';

const indexURL = new URL('../pyodide/', import.meta.url).href;

async function bytes(name) {
  return (await fetch(new URL(name, import.meta.url))).arrayBuffer();
}

async function gzip(blob) {
  return new Response(blob.stream().pipeThrough(new CompressionStream('gzip'))).arrayBuffer();
}

/** Bytes that Python's libraries may allocate before Python is restored, beyond those they allocated here. */
const SPARE = 1 << 20;
const WASM_PAGE = 1 << 16;
/** Larger than any free block between Python's allocations, so that a block of this size lies above all of them. */
const TOP = 1 << 23;
/** Runs of zeros of at least this length are left out of the snapshot. */
const HOLE = 1 << 14;

/**
 * Convert the snapshot to the format of web/snapshot/memory.js: Pyodide's description, and the memory without long runs of zeros.
 * @param {Uint8Array} snapshot
 * @param {Uint32Array} fresh the lower part of the memory before Python was started, of which the difference is stored
 * @returns {{head: number, heap: number, runs: [number, number][], picture: Blob}}
 */
function withoutZeros(snapshot, fresh) {
  const head = new Uint32Array(snapshot.buffer, 0, 2)[1];
  const heap = snapshot.subarray(head);
  const lower = new Uint32Array(snapshot.buffer, head, fresh.length);
  for (let index = 0; index < fresh.length; index++) lower[index] ^= fresh[index];
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

/** Overwrite freed memory, whose old contents would compress badly. @param {any} module Emscripten's module */
function wipe(module) {
  const blocks = [];
  const take = (size) => {
    const block = module._PyMem_RawMalloc(size);
    blocks.push(block);
    module.HEAPU8.fill(0, block, block + size);
    return block;
  };
  const top = take(TOP);
  for (let size = TOP >> 1; size >= 16; size >>= 1) while (take(size) < top);
  for (const block of blocks) module._PyMem_RawFree(block);
}

const input = await (await fetch(new URL('input.json', import.meta.url))).json();

/** Start Python with the packages, before any import. @param {object} options options of `loadPyodide` */
async function start(options) {
  const bundle = new Uint8Array(await bytes('packages'));
  const compiled = input.libraries.map(({ path, file }) => ({ path, module: bytes(file).then(WebAssembly.compile) }));
  const main = WebAssembly.compileStreaming(fetch(`${indexURL}pyodide.asm.wasm`));
  let fresh = new Uint32Array();
  const placed = await placeLibraries(indexURL, main, compiled, async ({ FS, API, HEAPU8, _sbrk }) => {
    unpack(FS, bundle, API.sitePackages);
    const before = HEAPU8.slice().buffer; // sbrk writes
    const low = Math.ceil((_sbrk(0) + SPARE) / WASM_PAGE) * WASM_PAGE;
    fresh = new Uint32Array(before, 0, low / 4);
  });
  const { loadPyodide } = await import(`${indexURL}pyodide.mjs`);
  const pyodide = await loadPyodide({ indexURL, ...placed.options, ...options, stdout: () => {} });
  pyodide.FS.mkdirTree('/build');
  for (const name of input.files) pyodide.FS.writeFile(`/build/${name}`, new Uint8Array(await bytes(name)));
  const run = async (name) => {
    pyodide.FS.writeFile(`/build/${name}`, new Uint8Array(await bytes(name)));
    pyodide.runPython(`import runpy; runpy.run_path("/build/${name}", run_name="__main__"); None`);
  };
  return { pyodide, module: placed.module, fresh, run };
}

/** Import everything and compile it. */
async function compileAll() {
  const { pyodide, run } = await start({});
  await run(input.warm);
  await run('bytecode.py');
  const [later, stripped] = ['later', 'stripped'].map((name) => pyodide.FS.readFile(`/build/${name}.zip`).buffer);
  return { later, stripped };
}

/** Take the snapshot. */
async function take() {
  const { pyodide, module, fresh, run } = await start({ _makeSnapshot: true, env: input.environment });
  await run(input.warm);
  wipe(module);
  const handles = Object.entries(module.LDSO.loadedLibsByHandle).filter(([handle]) => handle !== '0');
  // Pyodide needs its initial list of packages; it finds the installed ones again when it starts.
  for (const name of Object.keys(pyodide.loadedPackages)) delete pyodide.loadedPackages[name];
  const { head, heap, runs, picture } = withoutZeros(pyodide.makeMemorySnapshot(), fresh);
  const manifest = {
    head,
    heap,
    low: fresh.byteLength,
    fresh: checksum(fresh),
    runs,
    table: module.wasmTable.length,
    libraries: input.libraries,
    library: input.library,
    archive: input.archive,
    handles: handles.map(([handle, { name }]) => [handle, name]),
  };
  return { manifest, memory: await gzip(picture) };
}

async function make() {
  if (!snapshotsFit()) throw new Error('this browser has no WebAssembly garbage collection');
  self.postMessage(await (input.compile ? compileAll() : take()));
}

make().catch((error) => self.postMessage({ error: String(error?.stack ?? error) }));
