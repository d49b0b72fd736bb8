// @ts-check
/**
 * Fetch the memory snapshot that snapshot.js restores Python from.
 *
 * One file holds everything: packages for Python's file system, then the memory's runs of nonzero bytes. These are written
 * directly into the memory that Python will have, except for the lower part: WebAssembly writes there before Python is restored, so
 * that part is written later.
 */

import { importUrl } from './importing.js';

/**
 * @typedef {object} Manifest what the build says of a snapshot; files are relative to it
 * @property {number} bytes of `memory.bin`, unpacked
 * @property {number} packages bytes of a bundle of files
 * @property {number} head bytes of Pyodide's description of the snapshot, before those of the memory
 * @property {number} heap bytes of the memory
 * @property {number} low bytes of the memory that may be in use before Python is restored
 * @property {[number, number][]} runs of the memory that the file has: offset and length
 * @property {number} table entries of the function table when it was taken
 * @property {{path: string, file: string}[]} libraries in the order in which they are loaded
 * @property {[string, string][]} handles of the dynamic linker: its number, and the library's path
 */

/** A type of WebAssembly's garbage collection: Python's calls use it where there is one, and the snapshot relies on it. */
const GC_MODULE = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 95, 1, 120, 0]);

const WASM_PAGE = 1 << 16;
/** As Pyodide has it. */
const MOST_WASM_PAGES = 1 << 16;

/** Whether this browser's Python is laid out as in the snapshot. Pyodide treats iOS differently. */
export function snapshotsFit() {
  const { userAgent = '', platform = '', maxTouchPoints = 0 } = globalThis.navigator ?? {};
  const ios = /iPad|iPhone|iPod/.test(userAgent) || (platform === 'MacIntel' && maxTouchPoints > 1);
  return !ios && typeof DecompressionStream !== 'undefined' && WebAssembly.validate(GC_MODULE);
}

/** @type {Record<string, string>} */
let moved = {};

/** Let `located` find what another bundler has moved. @param {Record<string, string>} files addresses by those in the site */
export function locateIn(files) {
  moved = files;
}

/** Where a file of the site is. @param {string} url in the site */
export function located(url) {
  return moved[url] ?? url;
}

/** The address in the site of what came from `url`. @param {string} url */
export function siteAddress(url) {
  return Object.keys(moved).find((path) => moved[path] === url) ?? url;
}

/** @param {string} path @returns {Promise<Response>} */
async function get(path) {
  const url = located(path);
  const response = await fetch(url).catch((error) => { throw new Error(`${url}: ${error.message}`); });
  if (!response.ok || !response.body) throw new Error(`${url}: HTTP status ${response.status}`);
  return response;
}

/** Servers that do not know WebAssembly send it as another type, which `compileStreaming` refuses. @param {string} url */
export function compile(url) {
  const module = get(url).then(async (response) => (response.headers.get('Content-Type') === 'application/wasm'
    ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer()))).catch((error) => {
    throw new Error(`${url} cannot be made: ${error.message}`);
  });
  module.catch(() => {}); // awaited when it is needed
  return module;
}

/**
 * Read a file into `targets`, one after the other, all of which it must fill.
 * @param {Response} response whose body is compressed by gzip
 * @param {Uint8Array[]} targets
 * @param {() => void} first is called when the first one is full
 */
async function fill({ body, url }, targets, first) {
  let [index, filled, read] = [0, 0, 0];
  const reader = /** @type {ReadableStream<any>} */ (body).pipeThrough(new DecompressionStream('gzip')).getReader();
  for (let step = await reader.read(); !step.done; step = await reader.read()) {
    let block = step.value;
    read += block.length;
    while (block.length && index < targets.length) {
      const target = targets[index];
      const taken = block.subarray(0, target.length - filled);
      target.set(taken, filled);
      filled += taken.length;
      block = block.subarray(taken.length);
      if (filled === target.length) [index, filled] = [index + 1, 0];
      if (index === 1) first();
    }
  }
  const wanted = targets.reduce((sum, { length }) => sum + length, 0);
  if (read !== wanted) throw new Error(`${url} has ${read} bytes, not ${wanted}`);
}

/** Requests all files of the memory snapshot. */
class SnapshotFiles {
  /**
   * @param {string} folder of the snapshot
   * @param {string} indexURL of the Pyodide it was taken from
   */
  constructor(folder, indexURL) {
    this.folder = folder;
    /** Pyodide's own script, the largest. */
    this.script = importUrl(located(`${indexURL}pyodide.asm.js`));
    /** Null where the build took none. */
    this.manifest = get(`${folder}manifest.json`).then((response) => (
      /** @type {Promise<Manifest | null>} */ (response.json()))).catch((error) => {
      throw new Error(`${folder}manifest.json cannot be read: ${error.message}`);
    });
    this.main = compile(`${indexURL}pyodide.asm.wasm`);
    this.memory = this.manifest.then((known) => known && this.#begin(known));
    for (const promise of [this.script, this.manifest, this.memory]) promise.catch(() => {}); // awaited when they are needed
  }

  /** @param {Manifest} known */
  #begin(known) {
    const { packages, head, heap, low, runs, libraries } = known;
    const memory = new WebAssembly.Memory({ initial: heap / WASM_PAGE, maximum: MOST_WASM_PAGES });
    const lower = new Uint8Array(head + low);
    const bundle = new Uint8Array(packages);
    const targets = [bundle, lower.subarray(0, head)];
    for (const [offset, length] of runs) {
      const below = Math.max(0, Math.min(length, low - offset));
      if (below) targets.push(lower.subarray(head + offset, head + offset + below));
      if (below < length) targets.push(new Uint8Array(memory.buffer, offset + below, length - below));
    }
    let first = () => {};
    /** @type {Promise<void>} */
    const arrived = new Promise((resolve) => {
      first = resolve;
    });
    const filled = this.#fill(targets, first);
    const bundled = Promise.race([arrived, filled]).then(() => bundle);
    for (const promise of [filled, bundled]) promise.catch(() => {}); // awaited when they are needed
    return {
      memory,
      /** Files, as `unpack` of snapshot.js takes them. */
      bundled,
      /** Pyodide's description of the snapshot, and the lower part of the memory; complete when `filled`. */
      lower,
      filled,
      libraries: libraries.map(({ path, file }) => ({ path, module: compile(`${this.folder}${file}`) })),
    };
  }

  /**
   * @param {Uint8Array[]} targets
   * @param {() => void} first
   */
  async #fill(targets, first) {
    // Unpacking keeps this thread busy: it begins when WebAssembly is compiled in other threads and this one would wait.
    const [response] = await Promise.all([get(`${this.folder}memory.bin`), this.script]);
    await fill(response, targets, first);
  }
}

/** @type {{folder: string, indexURL: string, files: SnapshotFiles} | null} */
let prefetched = null;

/**
 * Prefetch the snapshot that `snapshotOf` will return.
 * @param {import('../api/protocol.js').StartArguments} places
 */
export function prefetchSnapshot({ pyodideUrl: indexURL, snapshotUrl: folder, moved: files }) {
  locateIn(files);
  prefetched = folder && snapshotsFit() ? { folder, indexURL, files: new SnapshotFiles(folder, indexURL) } : null;
}

/** @param {string} folder @param {string} indexURL */
export function snapshotOf(folder, indexURL) {
  const requested = prefetched;
  prefetched = null;
  return requested?.folder === folder && requested.indexURL === indexURL ? requested.files : new SnapshotFiles(folder, indexURL);
}
