// @ts-check
/**
 * The files of one model: fetched side by side, kept where there is room for them. A worker keeps large ones outside its
 * memory, as `ModelFile`s or Blobs; elsewhere, where nobody can read those synchronously, all are ArrayBuffers.
 */

import { downloads } from './downloads.js';
import { ModelFile } from './file.js';

/** Bytes from which on a file stays outside this thread's memory where it can. */
const BIG = 32 << 20;

const readsBlobs = 'FileReaderSync' in globalThis;

/** @typedef {ArrayBuffer | Blob | ModelFile} Held */

export class Loading {
  #report;
  #signal;
  #ended = new AbortController();
  /** What each address has brought and will bring. @type {Map<string, {loaded: number, total: number | undefined}>} */
  #counts = new Map();
  /** The strong ETag of each address, '' where there is none. @type {Record<string, string>} */
  tags = {};
  /** @type {ModelFile[]} */
  #files = [];
  /** What ended a file early that is no `ModelFile`. @type {{error: unknown} | null} */
  #failure = null;

  /**
   * @param {import('../runtime.js').Report} report is told of the progress of all files together, as the phase 'model'
   * @param {AbortSignal} signal
   */
  constructor(report, signal) {
    this.#report = report;
    this.#signal = this.#ended.signal;
    if (signal.aborted) this.#ended.abort(signal.reason);
    signal.addEventListener('abort', () => this.#ended.abort(signal.reason), { once: true });
  }

  /**
   * The model file, as far as a reader of its graph looks at it: large tensors may still arrive.
   * @param {string | Blob | ArrayBuffer} source
   * @returns {Promise<Held>}
   */
  async model(source) {
    if (typeof source !== 'string') return inPlace(source);
    const file = await this.#open(source, true);
    if (file instanceof ArrayBuffer) return file;
    await file.readable();
    if (!file.isComplete) return file;
    file.settle();
    return file.arrived < BIG ? file.whole() : file;
  }

  /**
   * A file of weights, which may still arrive.
   * @param {string | Blob | ArrayBuffer} source
   * @returns {Promise<Held>}
   */
  async data(source) {
    return typeof source === 'string' ? this.#open(source, false) : inPlace(source);
  }

  /**
   * What gives the files beside a model, by their address relative to it; null where it has no address.
   * @param {string | Blob | ArrayBuffer} model
   */
  beside(model) {
    if (typeof model !== 'string' || !/^https?:/.test(model)) return null;
    const folder = new URL('.', model).href;
    /** What a session has asked for: it may be made again. @type {Map<string, Promise<Held>>} */
    const asked = new Map();
    return async (/** @type {string} */ path) => {
      const { href } = new URL(path, folder);
      if (!href.startsWith(folder)) throw new TypeError(`${path} is not in ${folder}`);
      const held = asked.get(href) ?? this.data(href);
      asked.set(href, held);
      return held;
    };
  }

  /**
   * What `make` makes of the files: once more where it began with what was read ahead of a stream that has brought other bytes.
   * Where it fails by what is certainly of the files, nobody waits for the rest of them.
   * @template T
   * @param {() => Promise<T>} make
   * @param {(made: T) => Promise<unknown>} undo
   * @returns {Promise<T>}
   */
  async rightly(make, undo) {
    /** @type {Set<ModelFile>} */
    const misread = new Set();
    for (;;) {
      const outcome = await make().then((made) => ({ made }), (/** @type {unknown} */ error) => ({ error }));
      for (const file of this.#files) {
        if ('error' in outcome) await file.certain();
        else if (file.isReadAhead) await file.complete();
      }
      const found = this.#files.filter((file) => file.wasMisread && !misread.has(file));
      if (!found.length) {
        if ('error' in outcome) throw outcome.error;
        return outcome.made;
      }
      for (const file of found) misread.add(file);
      if ('made' in outcome) await undo(outcome.made);
    }
  }

  /** Rejected with what ended one of the files early; fulfilled where nothing has. */
  async failed() {
    for (const { failure } of [...this.#files, { failure: this.#failure }]) if (failure) throw failure.error;
  }

  /** Nobody wants what has not come yet. */
  stop() {
    this.#ended.abort();
  }

  /** Nobody follows the downloads any more. */
  settle() {
    for (const file of this.#files) file.settle();
  }

  /**
   * The file at `url`: what is small, or has no place elsewhere, when it is there; else when its size is known.
   * @param {string} url
   * @param {boolean} isModel whether what a reader of the graph looks at is to be kept
   */
  async #open(url, isModel) {
    const download = await downloads.open(url, isModel, this.#signal);
    const { size, isExact } = download;
    this.tags[url] = download.tag;
    const onProgress = (/** @type {number} */ loaded, /** @type {number | undefined} */ total) => this.#progress(url, loaded, total);
    if (!readsBlobs || (size ?? BIG) < BIG) {
      return download.whole(onProgress).catch((error) => {
        this.#failure ??= { error };
        throw error;
      });
    }
    const file = new ModelFile(url, { size, isExact }, download);
    this.#files.push(file);
    download.into(file, onProgress);
    if (size === undefined) await file.complete();
    return file;
  }

  /** @param {string} url @param {number} loaded @param {number | undefined} total */
  #progress(url, loaded, total) {
    this.#counts.set(url, { loaded, total });
    const counts = [...this.#counts.values()];
    const sum = counts.reduce((all, one) => all + one.loaded, 0);
    const whole = counts.reduce((/** @type {number | undefined} */ all, one) => (
      all === undefined || one.total === undefined ? undefined : all + one.total), 0);
    this.#report({ phase: 'model', status: 'progress', loaded: sum, total: whole, part: { url, loaded, total } });
  }
}

/**
 * Bytes as Python takes them.
 * @param {Blob | ArrayBuffer} source
 * @returns {Promise<ArrayBuffer> | Blob | ArrayBuffer}
 */
function inPlace(source) {
  if (source instanceof ArrayBuffer) return source;
  return readsBlobs && source.size >= BIG ? source : source.arrayBuffer();
}
