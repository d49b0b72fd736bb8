// @ts-check
/**
 * A file on its way from a server: its bytes go to the browser, which keeps them outside this process, and what a reader of its
 * graph looks at goes to who has asked for it. In the thread of the reader, or in one of its own (downloader.js).
 */

import { ReadingAhead } from './ahead.js';
import { noRoom, partOf } from './parts.js';
import { Ranges } from './ranges.js';
import { Requests } from './requests.js';
import { Scanner } from './scanner.js';
import { openStream } from './stream.js';
import { Buffers } from '../reading.js';
import { strongTag } from '../tags.js';

/** Bytes that go to the browser together. */
const BLOCK = 8 << 20;

/** Bytes of a file in memory that are handed on together. */
const PIECE = 1 << 18;

/** Bytes of one from which on its headers are read one after the other, where its end does not tell: fewer come sooner. */
const LONG = 32 << 20;

/** @typedef {import('./scanner.js').Segment} Segment */
/** @typedef {(loaded: number, total: number | undefined) => void} OnProgress */

/**
 * What was read ahead of the stream: these parts, where it has come to `from`.
 * @typedef {{from: number, segments: Segment[]}} Ahead
 */

/**
 * Who follows a download. Calls come in the order of the file; `ended` or `failed` is the last.
 * @typedef {object} Receiver
 * @property {(...chunks: Uint8Array<ArrayBuffer>[]) => void} [came] bytes are here; those that go to the browser are `handed` later, too
 * @property {(part: Blob) => Uint8Array<ArrayBuffer>[] | void} handed the browser has the next bytes; answers which chunks that
 * came are not looked at any more
 * @property {(segments: Segment[], isAhead: boolean) => void} graph all that a reader of the graph looks at, or that it is no
 * model; read ahead of the stream, or as it came
 * @property {(segments: Segment[]) => void} [outline] the same, ahead of the stream, with nothing in the tensors
 * @property {(segments: Segment[], agrees: boolean) => void} ended all has come; what was told before of the file agrees with it
 * @property {(error: unknown) => void} failed
 */

/** @typedef {Pick<Required<Receiver>, 'came' | 'ended' | 'failed'> & Partial<Pick<Receiver, 'graph' | 'outline'>>} InMemory Who has all of it. */

/**
 * A file of which the server has answered.
 * @typedef {object} Opened
 * @property {number | undefined} size in bytes as far as the server tells
 * @property {boolean} isExact whether that counts the bytes that arrive
 * @property {string} tag its strong ETag; '' where it has none
 * @property {(receiver: InMemory, onProgress: OnProgress) => void} pieces brings it piece by piece, which are the receiver's
 * @property {(receiver: Receiver, onProgress: OnProgress) => void} into brings it to the browser
 * @property {(wanted: readonly import('./ranges.js').Range[]) => Promise<Ahead | null>} ahead reads these parts of a file of weights ahead,
 * once; null where that cannot be
 * @property {() => Promise<boolean>} isVouchedFor whether the server says of all that was read ahead that it is of this very file
 * @property {boolean} isElsewhere whether another thread carries it
 */

/**
 * Ask for the file at `url`.
 * @param {string} url
 * @param {boolean} isModel whether what a reader of the graph looks at is to be kept
 * @param {AbortSignal} signal
 * @returns {Promise<Opened>}
 */
export async function openFile(url, isModel, signal) {
  const { size, isExact, response, chunks } = await openStream(url, signal);
  const tag = strongTag(response);
  const address = response.url || url;
  /** @type {Download | undefined} */
  let download;
  /** @type {Following | null} */
  let following = null;
  return {
    size,
    isExact,
    tag,
    pieces(receiver, onProgress) {
      const known = isModel && size !== undefined ? { size, isExact, tag } : null;
      following = known && receiver.graph ? new Following(address, known, receiver, signal) : null;
      handOn(chunks(new Buffers(PIECE)), receiver, (loaded) => onProgress(loaded, size), following);
    },
    into(receiver, onProgress) {
      const scanner = isModel ? new Scanner(isExact ? size : undefined) : null;
      const ahead = isModel && size !== undefined ? new ReadingAhead(address, { size, isExact, tag }, signal) : null;
      const requests = isModel || size === undefined ? null : new Requests(address, { size, isExact, tag }, signal);
      download = new Download(url, size, receiver, scanner, ahead, requests);
      download.take(chunks(download.buffers), onProgress);
    },
    ahead: async (wanted) => download?.readAhead(wanted) ?? null,
    isVouchedFor: async () => (download ?? following)?.isVouchedFor() ?? false,
    isElsewhere: false,
  };
}

export class Download {
  /** Which chunks may be in; they are given back. */
  buffers = new Buffers();
  /** What the browser has not been given yet. @type {Uint8Array<ArrayBuffer>[]} */
  #pending = [];
  #pendingBytes = 0;
  #loaded = 0;
  /** Fulfilled when the browser has what it was given. @type {Promise<void>} */
  #handedOver = Promise.resolve();
  /** Parts that are read ahead of the stream. @type {Ranges | null} */
  #ranges = null;
  /** Bytes that somebody waits for who has nothing before the browser has it. */
  #due = Infinity;
  #isOver = false;

  /**
   * @param {string} url
   * @param {number | undefined} size
   * @param {Receiver} receiver
   * @param {Scanner | null} [scanner] of a model
   * @param {ReadingAhead | null} [ahead] reads what is scanned before it comes
   * @param {Requests | null} [requests] for parts that somebody may want before they come
   */
  constructor(url, size, receiver, scanner = null, ahead = null, requests = null) {
    this.url = url;
    this.size = size;
    this.receiver = receiver;
    this.scanner = scanner;
    this.ahead = ahead;
    this.requests = requests;
    ahead?.done.then(() => ahead.found && receiver.graph(ahead.found.segments, true));
  }

  /**
   * Take what arrives, to the end.
   * @param {AsyncIterable<Uint8Array<ArrayBuffer>>} chunks
   * @param {OnProgress} onProgress
   */
  async take(chunks, onProgress) {
    try {
      for await (const chunk of chunks) {
        this.#add(chunk);
        onProgress(this.#loaded, this.size);
        if (this.#pendingBytes >= BLOCK) await this.#handedOver;
        if (this.#pendingBytes >= BLOCK || this.#loaded >= this.#due) this.#flush();
      }
      this.#flush();
      await this.#handedOver;
      this.#end();
    } catch (error) {
      this.#isOver = true;
      this.#ranges?.stop();
      this.receiver.failed(error);
    }
  }

  /**
   * Read these parts ahead of the stream: what was asked for first is what is read.
   * @param {readonly import('./ranges.js').Range[]} wanted
   * @returns {Promise<Ahead | null>}
   */
  async readAhead(wanted) {
    if (!this.requests || this.#isOver) return null;
    this.#ranges ??= new Ranges(this.requests, wanted, this.#loaded);
    const { from, found } = this.#ranges;
    if (!this.receiver.came && from <= this.#loaded) this.#flush();
    else if (!this.receiver.came) this.#due = from;
    const segments = await found;
    return segments && { from, segments };
  }

  /** Whether the server says of all that was read ahead that it is of the file that the stream brings. */
  async isVouchedFor() {
    return (this.ahead ?? this.requests)?.isVouchedFor() ?? false;
  }

  /** All has come: what was read ahead is not needed any more, and may have been wrong. */
  #end() {
    const { scanner, ahead } = this;
    scanner?.end();
    const agrees = this.size === this.#loaded && !(scanner && ahead && !ahead.agrees(scanner)) && (this.#ranges?.agrees ?? true);
    this.#isOver = true;
    ahead?.stop();
    this.#ranges?.stop();
    this.receiver.ended(scanner?.segments ?? [], agrees);
  }

  /** @param {Uint8Array<ArrayBuffer>} chunk */
  #add(chunk) {
    const { scanner, ahead } = this;
    const made = scanner?.isSenseless ?? false;
    this.#pending.push(chunk);
    this.#pendingBytes += chunk.length;
    this.#ranges?.push(chunk, this.#loaded);
    this.#loaded += chunk.length;
    scanner?.push(chunk);
    if (scanner) ahead?.follow(scanner);
    this.receiver.came?.(chunk);
    if (!made && scanner?.isSenseless) this.receiver.graph(scanner.segments, false);
  }

  /** Give the browser what has come, when it has taken what it was given before. */
  #flush() {
    const chunks = this.#pending;
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#due = this.#loaded >= this.#due ? Infinity : this.#due;
    this.#handedOver = this.#handedOver.then(() => this.#handOver(chunks));
    this.#handedOver.catch(() => {}); // awaited before the next, and at the end
  }

  /** @param {Uint8Array<ArrayBuffer>[]} chunks */
  async #handOver(chunks) {
    if (!chunks.length) return;
    const part = await partOf(chunks).catch((error) => { throw noRoom(this.url, this.#loaded, error); });
    for (const { buffer } of this.receiver.handed(part) ?? chunks) this.buffers.give(buffer);
  }
}

/** What a model in memory has for a reader of its graph, read ahead of the stream where the file's end tells where that is. */
class Following {
  #size;
  #scanner;
  #ahead;

  /**
   * @param {string} url
   * @param {import('./requests.js').Known} known
   * @param {InMemory} receiver
   * @param {AbortSignal} signal
   */
  constructor(url, known, receiver, signal) {
    this.#size = known.size;
    this.#scanner = new Scanner(known.isExact ? known.size : undefined, 0);
    this.#ahead = new ReadingAhead(url, known, signal, known.size >= LONG, receiver.outline);
    this.#ahead.done.then(() => this.#ahead.found && receiver.graph?.(this.#ahead.found.segments, true));
  }

  /** @param {Uint8Array<ArrayBuffer>} chunk */
  push(chunk) {
    this.#scanner.push(chunk);
    this.#ahead.follow(this.#scanner);
  }

  /** Whether a reader of the graph has all that it looks at. */
  get isTold() {
    return this.#ahead.found !== null;
  }

  /** All has come: whether what was read ahead was of this file. */
  end() {
    this.#scanner.end();
    const agrees = this.#scanner.at === this.#size && this.#ahead.agrees(this.#scanner);
    this.#ahead.stop();
    return agrees;
  }

  isVouchedFor() {
    return this.#ahead.isVouchedFor();
  }
}

/**
 * Give the receiver each chunk as it comes; several at a time where nobody reads them before all are there, as each time takes some
 * of its thread.
 * @param {AsyncIterable<Uint8Array<ArrayBuffer>>} chunks
 * @param {InMemory} receiver
 * @param {(loaded: number) => void} onProgress
 * @param {Following | null} following
 */
async function handOn(chunks, { came, ended, failed }, onProgress, following) {
  let loaded = 0;
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const held = [];
  try {
    for await (const chunk of chunks) {
      loaded += chunk.length;
      following?.push(chunk);
      held.push(chunk);
      if (!following?.isTold || held.length * PIECE >= BLOCK) came(...held.splice(0));
      onProgress(loaded);
    }
    if (held.length) came(...held);
    ended([], following?.end() ?? true);
  } catch (error) {
    failed(error);
  }
}
