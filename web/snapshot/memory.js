// @ts-check
/**
 * Fetch the memory snapshot from which snapshot.js restores Python.
 *
 * `memory.bin` holds the packages for Python's file system that are needed first, then the nonzero ranges of the memory. These are written
 * directly into Python's memory, except the lower part: WebAssembly writes there before Python is restored, so that part is applied later,
 * and the file has its difference to what WebAssembly writes.
 */

import { importUrl } from './importing.js';
import { Decompressor } from './zstd.js';

/** Same as in web/api/env.js, because a notebook kernel has a copy of this folder alone. The build updates both. */
const pyodideVersion = '0.29.5';

/**
 * @typedef {object} Manifest the build's description of a snapshot; paths are relative to it
 * @property {number} packages bytes of a bundle of files, at the start of `memory.bin`'s content
 * @property {number} now number of the bundle's files that have their content in it
 * @property {number} later bytes of `packages.bin`'s content: files that are fetched on first read
 * @property {number} library bytes of Pyodide's `python_stdlib.zip`
 * @property {string} archive path of the library in Python's file system
 * @property {number} head bytes of Pyodide's description of the snapshot, which precedes the memory
 * @property {number} heap bytes of the memory
 * @property {number} low bytes at the start of the memory that may be in use before Python is restored
 * @property {number} fresh checksum of these bytes after the libraries are loaded
 * @property {[number, number][]} runs ranges of the memory in the file: offset and length
 * @property {number} table number of function table entries when the snapshot was taken
 * @property {{path: string, file: string}[]} libraries in load order
 * @property {[string, string][]} handles the dynamic linker's handles: number and path of the library
 */

/** A WebAssembly garbage-collection type: Python's calls use it if supported, and the snapshot relies on it. */
const GC_MODULE = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 95, 1, 120, 0]);

const WASM_PAGE = 1 << 16;
/** Same as in Pyodide. */
const MOST_WASM_PAGES = 1 << 16;

/** Return whether the memory layout of this browser's Python matches the snapshot. Pyodide treats iOS differently. */
export function snapshotsFit() {
  const { userAgent = '', platform = '', maxTouchPoints = 0 } = globalThis.navigator ?? {};
  const ios = /iPad|iPhone|iPod/.test(userAgent) || (platform === 'MacIntel' && maxTouchPoints > 1);
  return !ios && WebAssembly.validate(GC_MODULE);
}

/** Return the name of Pyodide's script, which is an ES module since version 314. @param {string} [version] */
export function scriptName(version = pyodideVersion) {
  return Number.parseInt(version) >= 314 ? 'pyodide.asm.mjs' : 'pyodide.asm.js';
}

/** @type {Record<string, string>} */
let moved = {};

/** Set the addresses of files that another bundler has moved. @param {Record<string, string>} files addresses by those in the site */
export function locateIn(files) {
  moved = files;
}

/** Return the address of a file of the site. @param {string} url its address in the site */
export function located(url) {
  return moved[url] ?? url;
}

/** Return the address in the site of a file fetched from `url`. @param {string} url */
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

/** Compile WebAssembly. Some servers send it with another content type, which `compileStreaming` refuses. @param {string} url */
export function compile(url) {
  const module = get(url).then(async (response) => (response.headers.get('Content-Type') === 'application/wasm'
    ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer()))).catch((error) => {
    throw new Error(`${url} cannot be made: ${error.message}`);
  });
  module.catch(() => {}); // awaited on use
  return module;
}

/** Bytes of the snapshot's memory that have arrived, as transferred. */
export const received = { bytes: 0 };

/** Return the bytes of a response, counting them as they arrive. @param {Response} response */
function counted({ body }) {
  const counting = new TransformStream({ transform(/** @type {Uint8Array} */ chunk, controller) {
    received.bytes += chunk.byteLength;
    controller.enqueue(chunk);
  } }, undefined, new CountQueuingStrategy({ highWaterMark: Infinity }));
  return /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (body).pipeThrough(counting);
}

/** Requests all files of the memory snapshot. */
class SnapshotFiles {
  /**
   * @param {string} folder of the snapshot
   * @param {string} indexURL of the Pyodide it was taken from
   */
  constructor(folder, indexURL) {
    this.folder = folder;
    /** Pyodide's script, the largest. */
    this.script = importUrl(located(indexURL + scriptName()));
    /** Null if the build has no snapshot. */
    this.manifest = get(`${folder}manifest.json`).then((response) => (
      /** @type {Promise<Manifest | null>} */ (response.json()))).catch((error) => {
      throw new Error(`${folder}manifest.json cannot be read: ${error.message}`);
    });
    this.main = compile(`${indexURL}pyodide.asm.wasm`);
    this.decoder = compile(`${folder}zstd.wasm`);
    this.packed = get(`${folder}memory.bin`).then(counted);
    this.memory = this.manifest.then((known) => known && this.#begin(known));
    for (const promise of [this.script, this.manifest, this.packed, this.memory]) promise.catch(() => {}); // awaited on use
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
    const filled = this.#fill(targets);
    filled.catch(() => {}); // awaited on use
    return {
      memory,
      /** Files in the format of `unpack` (snapshot.js); complete after `filled`. */
      bundle,
      /** Pyodide's description of the snapshot, and the lower part of the memory; complete after `filled`. */
      lower,
      filled,
      libraries: libraries.map(({ path, file }) => ({ path, module: compile(`${this.folder}${file}`) })),
    };
  }

  /** Write the content of `memory.bin` to `targets` in order, as it arrives. @param {Uint8Array[]} targets */
  async #fill(targets) {
    // Decompression occupies this thread, so it starts while other threads compile WebAssembly and this one would wait.
    const [packed, decoder] = await Promise.all([this.packed, this.decoder, this.script]);
    const decompressor = new Decompressor(decoder, targets);
    const reader = packed.getReader();
    for (let next = await reader.read(); next.value; next = await reader.read()) decompressor.push(next.value);
    decompressor.end();
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
