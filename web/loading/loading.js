// @ts-check
/**
 * The files of one model: fetched side by side, kept where there is room for them. A worker keeps large ones outside its
 * memory, as `ModelFile`s or Blobs; elsewhere, where nobody can read those synchronously, all are in memory.
 */

import { ArrivingBuffer } from './buffer.js';
import { downloads } from './downloads.js';
import { ModelFile } from './file.js';
import { timed } from '../runtime.js';

/** Bytes from which on a file stays outside this thread's memory where it can; a model, which is uploaded at once, later. */
const BIG = 32 << 20;
const BIG_MODEL = 64 << 20;

const readsBlobs = 'FileReaderSync' in globalThis;

/** Bytes from which on a file in memory is worth to be read while it comes. */
const LONG = 1 << 20;

/** @typedef {ArrayBuffer | Blob | ArrivingBuffer | ModelFile} Held */

export class Loading {
  #report;
  #signal;
  #ended = new AbortController();
  /** What each address has brought and will bring. @type {Map<string, {loaded: number, total: number | undefined}>} */
  #counts = new Map();
  /** The strong ETag of each address, '' where there is none. @type {Record<string, string>} */
  tags = {};
  /** @type {(ArrivingBuffer | ModelFile)[]} */
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
   * A model and the files given beside it, when they can be read; the phase 'model' ends when those in memory are there.
   * @param {string | Blob | ArrayBuffer} model
   * @param {(string | Blob | ArrayBuffer)[]} others
   * @returns {Promise<Held[]>}
   */
  open(model, others) {
    return new Promise((resolve, reject) => {
      timed(this.#report, 'model', async () => {
        resolve(await Promise.all([this.model(model), ...others.map((other) => this.data(other))]));
        await this.#inMemory();
      }).catch(reject);
    });
  }

  /**
   * The model file, as far as a reader of its graph looks at it: large tensors may still arrive.
   * @param {string | Blob | ArrayBuffer} source
   * @returns {Promise<Held>}
   */
  async model(source) {
    if (typeof source !== 'string') return inPlace(source);
    const file = await this.#open(source, true);
    if (!(file instanceof ModelFile)) return file;
    await file.readable();
    if (!file.isComplete) return file;
    file.settle();
    return file.arrived < BIG_MODEL ? file.whole() : file;
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
    /** @type {Set<ArrivingBuffer | ModelFile>} */
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
    for (const { failure } of this.#files) if (failure) throw failure.error;
  }

  /** Fulfilled when all of the files in memory are there. */
  async #inMemory() {
    await Promise.all(this.#files.map((file) => (file instanceof ArrivingBuffer ? file.complete() : null)));
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
   * The file at `url`, when its size is known; a tiny one when it is there.
   * @param {string} url
   * @param {boolean} isModel whether what a reader of the graph looks at is to be kept
   * @returns {Promise<ArrayBuffer | ArrivingBuffer | ModelFile>}
   */
  async #open(url, isModel) {
    const download = await downloads.open(url, isModel, this.#signal);
    const { size, isExact } = download;
    this.tags[url] = download.tag;
    const onProgress = (/** @type {number} */ loaded, /** @type {number | undefined} */ total) => this.#progress(url, loaded, total);
    if (!readsBlobs || (size ?? Infinity) < (isModel ? BIG_MODEL : BIG)) return this.#intoMemory(url, download, isModel, onProgress);
    const file = new ModelFile(url, { size, isExact }, download);
    this.#files.push(file);
    download.into(file, onProgress);
    if (size === undefined) await file.complete();
    return file;
  }

  /**
   * @param {string} url
   * @param {import('./download.js').Opened} download
   * @param {boolean} isModel
   * @param {import('./download.js').OnProgress} onProgress
   */
  async #intoMemory(url, download, isModel, onProgress) {
    const size = (download.size ?? Infinity) < BIG_MODEL ? download.size : undefined;
    const file = new ArrivingBuffer(url, size, download);
    this.#files.push(file);
    download.pieces({
      came: (...chunks) => { for (const chunk of chunks) file.came(chunk); },
      // Planning in the thread that the file comes through would hold it up.
      ...(isModel && download.isElsewhere ? { graph: (segments) => file.graph(segments), outline: (segments) => file.outline(segments) } : {}),
      ended: (_, agrees) => file.ended(agrees),
      failed: (error) => file.failed(error),
    }, onProgress);
    if (size !== undefined && size >= LONG) return file;
    await file.complete();
    return file.buffer;
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
