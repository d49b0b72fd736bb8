// @ts-check
/**
 * The files of one model: fetched side by side, kept where there is room for them. A worker keeps large ones outside its
 * memory, as `ModelFile`s or Blobs; elsewhere, where nobody can read those synchronously, all are ArrayBuffers.
 */

import { openFile } from './file.js';

/** Bytes from which on a file stays outside this thread's memory where it can. */
const BIG = 32 << 20;

const readsBlobs = 'FileReaderSync' in globalThis;

/** @typedef {import('./file.js').ModelFile} ModelFile */
/** @typedef {ArrayBuffer | Blob | ModelFile} Held */

export class Loading {
  #report;
  #signal;
  #ended = new AbortController();
  /** What each address has brought and will bring. @type {Map<string, {loaded: number, total: number | undefined}>} */
  #counts = new Map();
  /** @type {ModelFile[]} */
  #files = [];

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
   * The model file, all of it: what says which inputs a graph has comes last.
   * @param {string | Blob | ArrayBuffer} source
   * @returns {Promise<Held>}
   */
  async model(source) {
    if (typeof source !== 'string') return inPlace(source);
    const file = await this.#open(source, true);
    await file.complete();
    file.settle();
    return this.#kept(file);
  }

  /**
   * A file of weights, which may still arrive.
   * @param {string | Blob | ArrayBuffer} source
   * @returns {Promise<Held>}
   */
  async data(source) {
    if (typeof source !== 'string') return inPlace(source);
    const file = await this.#open(source, false);
    if (readsBlobs && (file.size ?? 0) >= BIG) return file;
    await file.complete();
    return this.#kept(file);
  }

  /**
   * What gives the files beside a model, by their address relative to it; null where it has no address.
   * @param {string | Blob | ArrayBuffer} model
   */
  beside(model) {
    if (typeof model !== 'string' || !/^https?:/.test(model)) return null;
    const folder = new URL('.', model).href;
    return async (/** @type {string} */ path) => {
      const { href } = new URL(path, folder);
      if (!href.startsWith(folder)) throw new TypeError(`${path} is not in ${folder}`);
      return this.data(href);
    };
  }

  /** Rejected with what ended one of the files early; fulfilled where nothing has. */
  async failed() {
    for (const { failure } of this.#files) if (failure) throw failure.error;
  }

  /** Nobody wants what has not come yet. */
  stop() {
    this.#ended.abort();
  }

  /** Nobody follows the downloads any more. */
  settle() {
    for (const file of this.#files) file.settle();
  }

  /** @param {string} url @param {boolean} isModel */
  async #open(url, isModel) {
    const file = await openFile(url, {
      isModel,
      signal: this.#signal,
      onProgress: (loaded, total) => {
        this.#counts.set(url, { loaded, total });
        const counts = [...this.#counts.values()];
        const sum = counts.reduce((all, one) => all + one.loaded, 0);
        const whole = counts.reduce((/** @type {number | undefined} */ all, one) => (
          all === undefined || one.total === undefined ? undefined : all + one.total), 0);
        this.#report({ phase: 'model', status: 'progress', loaded: sum, total: whole });
      },
    });
    this.#files.push(file);
    return file;
  }

  /** @param {ModelFile} file @returns {Promise<Held>} */
  async #kept(file) {
    return readsBlobs && file.arrived >= BIG ? file : file.whole();
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
