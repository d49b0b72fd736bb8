// @ts-check
/**
 * Load the files of a model in parallel. A worker keeps large files outside its memory, as `ModelFile`s or Blobs. Elsewhere, where Blobs
 * cannot be read synchronously, all files are in memory.
 */

import { ArrivingBuffer } from './buffer.js';
import { downloads } from './downloads.js';
import { ModelFile } from './file.js';
import { timed } from '../worker/runtime.js';
import { changed, validatorOf } from '../net/stream.js';

/** Bytes above which a file is kept outside this thread's memory, if possible, and is prefetched. */
const BIG = 32 << 20;

const readsBlobs = 'FileReaderSync' in globalThis;

/** Bytes above which a file in memory is read while it arrives. */
const LONG = 1 << 20;

/** @typedef {ArrayBuffer | Blob | ArrivingBuffer | ModelFile} Held */

export class Loading {
  #report;
  #cache;
  #ended = new AbortController();
  /** Bytes loaded and total of each address. @type {Map<string, {loaded: number, total: number | undefined}>} */
  #counts = new Map();
  /** The strong ETag of each address, or ''. @type {Record<string, string>} */
  tags = {};
  /** @type {(ArrivingBuffer | ModelFile)[]} */
  #files = [];
  /** The model's file, and its validator. @type {{file: ArrivingBuffer | ModelFile, validator: string} | null} */
  #model = null;
  /** Fulfilled when the model is confirmed to be the server's; null if that was not checked. @type {Promise<void> | null} */
  #confirmed = null;

  /**
   * @param {import('../worker/runtime.js').Report} report receives the progress of all files together, as the phase 'model'
   * @param {AbortSignal} signal
   * @param {RequestCache} [cache] cache mode of requests
   */
  constructor(report, signal, cache) {
    this.#report = report;
    this.#cache = cache;
    if (signal.aborted) this.#ended.abort(signal.reason);
    signal.addEventListener('abort', () => this.#ended.abort(signal.reason), { once: true });
  }

  /**
   * Open a model and its external files; they are readable when this resolves. The phase 'model' ends when those in memory are complete.
   * @param {string | Blob | ArrayBuffer} model
   * @param {(string | Blob | ArrayBuffer)[]} others
   * @returns {Promise<Held[]>}
   */
  open(model, others) {
    return new Promise((resolve, reject) => {
      timed(this.#report, 'model', async () => {
        resolve(await Promise.all([this.#held(model, true), ...others.map((other) => this.#held(other, false))]));
        if (others.some((other) => typeof other === 'string')) await this.#confirm();
        await Promise.all(this.#files.map((file) => (file instanceof ArrivingBuffer ? file.there(file.size ?? Infinity) : null)));
      }).catch(reject);
    });
  }

  /**
   * Open a file that may still be loading: a model once the parts of its graph have arrived, external data once the size is known.
   * @param {string | Blob | ArrayBuffer} source
   * @param {boolean} isModel
   * @returns {Promise<Held>}
   */
  async #held(source, isModel) {
    if (source instanceof ArrayBuffer) return source;
    if (typeof source !== 'string') return readsBlobs && source.size >= BIG ? source : source.arrayBuffer();
    const file = await this.#open(source, isModel);
    if (!isModel || !(file instanceof ModelFile)) return file;
    await file.readable();
    return file.isComplete && file.arrived < BIG ? file.whole() : file;
  }

  /**
   * Return a function that fetches files by addresses relative to the model's; null if the model has no address.
   * @param {string | Blob | ArrayBuffer} model
   */
  relativeTo(model) {
    if (typeof model !== 'string' || !/^https?:/.test(model)) return null;
    const folder = new URL('.', model).href;
    /** Files that the session has requested, in case it is created again. @type {Map<string, Promise<Held>>} */
    const asked = new Map();
    return async (/** @type {string} */ path) => {
      const { href } = new URL(path, folder);
      if (!href.startsWith(folder)) throw new TypeError(`${path} is not in ${folder}`);
      const held = asked.get(href) ?? this.#held(href, false);
      asked.set(href, held);
      await this.#confirm();
      return held;
    };
  }

  /**
   * Call `make` with the files, and once more if prefetched bytes turn out to differ from the stream's.
   *
   * An error caused by bytes that are certain ends the download.
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

  /**
   * Fulfilled when the model is the one that the server has. The browser may have cached it but not its weight files, and does not
   * revalidate what it considers fresh: an old graph would compute with new weights.
   */
  #confirm() {
    return (this.#confirmed ??= this.#ask());
  }

  async #ask() {
    if (!this.#model || this.#cache === 'reload') return;
    const { file, validator } = this.#model;
    if (file.arrived === file.size) await file.complete(); // then its origin is known
    if (!validator || (file.isComplete && !file.isCached)) return;
    const response = await fetch(file.url, { cache: 'no-cache', signal: this.#ended.signal }).catch(() => null);
    response?.body?.cancel().catch(() => {});
    const now = response?.ok ? validatorOf(response) : '';
    if (now && now !== validator) throw changed(file.url, `it was ${validator}, it is ${now}`);
  }

  /** Reject with the error of a file, or if files do not match; fulfilled otherwise. */
  async failed() {
    await this.#confirmed;
    for (const { failure } of this.#files) if (failure) throw failure.error;
  }

  /** Abort the downloads. */
  stop() {
    this.#ended.abort();
  }

  /**
   * Open the file at `url` once its size is known; a tiny file once it has arrived.
   * @param {string} url
   * @param {boolean} isModel whether to keep the parts of the file that the graph is read from
   * @returns {Promise<ArrayBuffer | ArrivingBuffer | ModelFile>}
   */
  async #open(url, isModel) {
    const download = await downloads.open(url, isModel, this.#ended.signal, this.#cache);
    const { size, isExact, tag, validator } = download;
    this.tags[url] = tag;
    const isSmall = size !== undefined && size < BIG;
    const file = isSmall || !readsBlobs
      ? new ArrivingBuffer(url, isSmall ? size : undefined, isExact)
      : new ModelFile(url, { size, isExact }, download);
    this.#files.push(file);
    if (isModel) this.#model = { file, validator };
    file.progress = (loaded, total) => this.#progress(url, loaded, total);
    if (file instanceof ModelFile) download.into(file);
    else download.pieces(file);
    if (file.size === undefined || file.size < LONG) await file.complete();
    return file instanceof ArrivingBuffer && file.isComplete ? file.buffer : file;
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
