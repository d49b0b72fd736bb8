// @ts-check
/**
 * Downloads in a thread of their own: what streams in does not wait for Python there, and Python starts and plans while it streams
 * in. Where there is no such thread, or none yet when Python is up, files are downloaded in this one.
 */

import { openFile } from './download.js';
import { withResolvers } from '../resolvers.js';
import { openThread } from '../threads.js';

/**
 * @typedef {import('./download.js').Ahead} Ahead
 * @typedef {import('./download.js').Opened} Opened
 * @typedef {import('./download.js').OnProgress} OnProgress
 * @typedef {import('./download.js').Receiver} Receiver
 * @typedef {import('./scanner.js').Segment} Segment
 */

/**
 * What downloader.js says, of a file by its number, or that it is there.
 * @typedef {{ready: true, file?: undefined} | {file: number, opened: Pick<Opened, 'size' | 'isExact' | 'tag'>} | {file: number, came: Uint8Array<ArrayBuffer>[]}
 *   | {file: number, handed: Blob} | {file: number, graph: {segments: Segment[], isAhead: boolean}} | {file: number, outline: Segment[]}
 *   | {file: number, ended: {segments: Segment[], agrees: boolean}, came?: Uint8Array<ArrayBuffer>[]} | {file: number, failed: {name: string, message: string}}
 *   | {file: number, progress: {loaded: number, total: number | undefined}} | {file: number, isVouchedFor: boolean}
 *   | {file: number, ahead: Ahead | null}} Answer
 */

/** One file, as the other thread tells of it. */
class Elsewhere {
  isElsewhere = true;
  /** @type {number | undefined} */
  size;
  isExact = false;
  tag = '';
  #send;
  #signal;
  /** @type {Pick<Receiver, 'ended' | 'failed'> & Partial<Receiver> | null} */
  #receiver = null;
  /** @type {OnProgress} */
  #onProgress = () => {};
  /** What the server said. @type {ReturnType<typeof withResolvers>} */
  #answer = withResolvers();
  #vouched = withResolvers();
  #ahead = withResolvers();
  #isOver = false;
  #stopped;

  /**
   * @param {(method: string, asked?: object) => void} send
   * @param {AbortSignal} signal
   * @param {() => void} over hears that there is nothing more to tell
   */
  constructor(send, signal, over) {
    this.#send = send;
    this.#signal = signal;
    this.#stopped = () => this.#fail(signal.reason);
    this.over = over;
    signal.addEventListener('abort', this.#stopped, { once: true });
  }

  /** @param {string} url @param {boolean} isModel @returns {Promise<Opened>} */
  async open(url, isModel) {
    this.#send('open', { url, isModel });
    Object.assign(this, await this.#answer.promise);
    return this;
  }

  /** @param {import('./download.js').InMemory} receiver @param {OnProgress} onProgress */
  pieces(receiver, onProgress) {
    this.#follow('pieces', receiver, onProgress);
  }

  /** @param {Receiver} receiver @param {OnProgress} onProgress */
  into(receiver, onProgress) {
    this.#follow('into', receiver, onProgress);
  }

  /** @param {string} method @param {Pick<Receiver, 'ended' | 'failed'> & Partial<Receiver>} receiver @param {OnProgress} onProgress */
  #follow(method, receiver, onProgress) {
    this.#onProgress = onProgress;
    this.#receiver = receiver;
    this.#send(method);
  }

  /** @param {readonly import('./ranges.js').Range[]} wanted */
  ahead(wanted) {
    if (!this.#isOver) this.#send('ahead', { wanted });
    return this.#ahead.promise;
  }

  isVouchedFor() {
    this.#send('vouch');
    return this.#vouched.promise;
  }

  /** @param {Record<string, any>} said */
  hear({ opened, came, handed, outline, graph, ended, failed, progress, isVouchedFor, ahead }) {
    if (this.#isOver) return;
    const receiver = this.#receiver;
    if (opened) this.#answer.resolve(opened);
    if (progress) this.#onProgress(progress.loaded, progress.total);
    if (came) receiver?.came?.(...came);
    if (handed) receiver?.handed?.(handed);
    if (outline) receiver?.outline?.(outline);
    if (graph) receiver?.graph?.(graph.segments, graph.isAhead);
    if (isVouchedFor !== undefined) this.#vouched.resolve(isVouchedFor);
    if (ahead !== undefined) this.#ahead.resolve(ahead);
    if (ended) receiver?.ended(ended.segments, ended.agrees);
    if (failed) this.#fail(Object.assign(new Error(failed.message), { name: failed.name }));
    if (ended) this.#end();
  }

  /** @param {unknown} error */
  #fail(error) {
    if (this.#receiver) this.#receiver.failed(error);
    else this.#answer.reject(error);
    this.#end();
  }

  #end() {
    this.#isOver = true;
    this.#vouched.resolve(false);
    this.#ahead.resolve(null);
    this.#signal.removeEventListener('abort', this.#stopped);
    this.#send('stop');
    this.over();
  }
}

class Downloads {
  /** @type {import('../threads.js').Thread | null} */
  #thread = null;
  #isReady = false;
  /** Fulfilled when the thread is ready, or when nobody is to wait for it any more. */
  #awaited = withResolvers();
  #last = 0;
  /** @type {Map<number, Elsewhere>} */
  #files = new Map();
  /** @type {Set<string>} */
  #asked = new Set();

  /** The URLs of what the thread was started from, without what this one imports as well, and of what it was asked for. */
  get resources() {
    const modules = this.#isReady ? ['./downloader.js', './rehearsal.js', '../thread.js'] : [];
    return [...modules.map((module) => new URL(module, import.meta.url).href), ...this.#asked];
  }

  /**
   * Bring the thread up, where there can be one.
   * @param {Promise<unknown>} python files wait for the thread no longer than for this
   */
  start(python) {
    if (this.#thread) return;
    const hear = (/** @type {Answer} */ said) => this.#hear(said);
    this.#thread = openThread('downloads', hear, (message) => this.#fail(message));
    python.finally(() => this.#awaited.resolve(undefined)).catch(() => {}); // who awaits Python hears why it did not start
    python.then(() => this.#isReady && this.#thread?.post({ method: 'rehearse' }), () => {}); // nothing waits for a processor any more
  }

  /** @param {Answer} said */
  #hear(said) {
    if (said.file !== undefined) this.#files.get(said.file)?.hear(said);
    else {
      this.#isReady = true;
      this.#awaited.resolve(undefined);
    }
  }

  /** @param {string} message */
  #fail(message) {
    this.#isReady = false;
    this.#awaited.resolve(undefined);
    const failed = { name: 'Fail', message: `downloads have ended (${message}): create the session again` };
    for (const file of [...this.#files.values()]) file.hear({ failed });
  }

  /**
   * Ask for the file at `url`.
   * @param {string} url
   * @param {boolean} isModel whether what a reader of the graph looks at is to be kept
   * @param {AbortSignal} signal
   * @returns {Promise<Opened>}
   */
  async open(url, isModel, signal) {
    const thread = this.#thread;
    if (thread) await this.#awaited.promise;
    signal.throwIfAborted();
    if (!thread || !this.#isReady) return openFile(url, isModel, signal);
    this.#last += 1;
    const number = this.#last;
    const send = (/** @type {string} */ method, asked = {}) => thread.post({ file: number, method, ...asked });
    const file = new Elsewhere(send, signal, () => this.#files.delete(number));
    this.#files.set(number, file);
    const { href } = new URL(url, globalThis.location.href);
    this.#asked.add(href);
    return file.open(href, isModel);
  }
}

export const downloads = new Downloads();
