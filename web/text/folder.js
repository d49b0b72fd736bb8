// @ts-check
/** Read the files of a model by path: from a URL, from files that the user chose, or by a reader of the caller. */

import { wrong } from '../api/arguments.js';
import { fetchAll } from '../net/stream.js';

/**
 * @callback Report progress of a file
 * @param {number} loaded
 * @param {number | undefined} total
 *
 * @typedef {object} Folder
 * @property {string} name name in error messages
 * @property {(path: string, signal?: AbortSignal) => Promise<boolean>} has
 * @property {(path: string, options?: {signal?: AbortSignal, onProgress?: Report}) => Promise<Blob | null>} read null: no such file
 */

class NotThere extends Error {
  name = 'NoSuchFile';
}

/** @param {string} path */
function encoded(path) {
  return path.split('/').map(encodeURIComponent).join('/');
}

/** @implements {Folder} */
class RemoteFolder {
  /** Sizes of files by address, if the server sent them. @type {Map<string, number>} */
  #sizes = new Map();

  /** @param {string} url */
  constructor(url) {
    const base = new URL(url, globalThis.document?.baseURI ?? globalThis.location.href);
    if (!base.pathname.endsWith('/')) base.pathname += '/';
    this.base = base;
    this.name = base.href;
  }

  /** @param {string} path @param {AbortSignal} [signal] */
  async has(path, signal) {
    const { url } = this.address(path);
    const { ok, headers } = await fetch(url, { method: 'HEAD', signal });
    const length = headers.get('Content-Length');
    if (ok && length) this.#sizes.set(url, Number(length));
    return ok;
  }

  /** @param {string} path */
  address(path) {
    const url = new URL(encoded(path), this.base).href;
    return { url, size: this.#sizes.get(url) };
  }

  /** @param {string} path @param {{signal?: AbortSignal, onProgress?: Report}} [options] */
  async read(path, { signal, onProgress } = {}) {
    const { url } = this.address(path);
    return fetchAll(url, { signal, onProgress, cache: 'no-cache' }).catch((error) => {
      if (error?.status === 404) return null;
      throw error;
    });
  }
}

/** @implements {Folder} */
class ChosenFolder {
  /** @param {ReadonlyMap<string, Blob>} files by path; all paths start with the folder's name, or none */
  constructor(files) {
    const paths = [...files.keys()];
    const first = paths[0]?.split('/')[0] ?? '';
    const within = paths.every((path) => path.startsWith(`${first}/`)) && !['onnx', ''].includes(first);
    this.name = within ? first : 'the chosen files';
    this.files = new Map([...files].map(([path, file]) => [within ? path.slice(first.length + 1) : path, file]));
  }

  /** Return a file by path, or by name alone if it has no path. @param {string} path */
  find(path) {
    return this.files.get(path) ?? this.files.get(/** @type {string} */ (path.split('/').pop())) ?? null;
  }

  /** @param {string} path */
  async has(path) {
    return this.find(path) !== null;
  }

  /** @param {string} path @param {{onProgress?: Report}} [options] */
  async read(path, { onProgress } = {}) {
    const file = this.find(path);
    if (file) onProgress?.(file.size, file.size);
    return file;
  }
}

/**
 * Return address and size of a file, for callers that fetch it themselves; null if it has no address.
 * @param {Folder} folder
 * @param {string} path
 */
export function addressOf(folder, path) {
  return folder instanceof RemoteFolder ? folder.address(path) : null;
}

/** Return the path in a folder of the file at an address. @param {Folder} folder @param {string} url */
export function pathIn(folder, url) {
  const base = addressOf(folder, '.')?.url;
  return base && url.startsWith(base) ? decodeURIComponent(url.slice(base.length)) : url;
}

/**
 * @param {import('../pyruntime.js').FolderSource} source
 * @returns {Folder}
 */
export function openFolder(source) {
  if (typeof source === 'string' || source instanceof URL) return new RemoteFolder(String(source));
  if (source instanceof Map) return new ChosenFolder(source);
  if (Symbol.iterator in Object(source)) {
    const files = [.../** @type {Iterable<File>} */ (source)];
    return new ChosenFolder(new Map(files.map((file) => [file.webkitRelativePath || file.name, file])));
  }
  if (typeof (/** @type {any} */ (source))?.read === 'function') return /** @type {Folder} */ (source);
  throw wrong('the folder', 'a URL, files, a Map of Blobs by path, or an object with has(path) and read(path)', source);
}

/** Read a file that must exist. @param {Folder} folder @param {string} path @param {AbortSignal} [signal] */
export async function required(folder, path, signal) {
  const blob = await folder.read(path, { signal });
  if (!blob) throw new NotThere(`${folder.name} has no ${path}`);
  return blob;
}

/** Parse a JSON file; null if there is none. @param {Folder} folder @param {string} path @param {AbortSignal} [signal] */
export async function json(folder, path, signal) {
  const blob = await folder.read(path, { signal });
  if (!blob) return null;
  try {
    return JSON.parse(await blob.text());
  } catch (error) {
    throw new SyntaxError(`${folder.name}: ${path} is no JSON: ${/** @type {Error} */ (error).message}`);
  }
}
