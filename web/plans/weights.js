// @ts-check
/** Constants of a compiled model to the GPU, from the model's bytes as they arrive. */

import { Refused } from './plan.js';
import { BLOCK, ofHashes } from './treehash.js';
import { strongTag } from '../tags.js';
import { readerInto } from '../reading.js';

/** Writes bytes that come in any pieces, a word at least at a time. */
class Writer {
  #rest = new Uint8Array(0);

  /** @param {GPUQueue} queue @param {GPUBuffer} buffer @param {number} at */
  constructor(queue, buffer, at) {
    this.queue = queue;
    this.buffer = buffer;
    this.at = at;
  }

  /** @param {Uint8Array<ArrayBuffer>} bytes @param {boolean} last */
  push(bytes, last) {
    if (this.#rest.length) {
      const taken = Math.min(4 - this.#rest.length, bytes.length);
      this.#rest = new Uint8Array([...this.#rest, ...bytes.subarray(0, taken)]);
      bytes = bytes.subarray(taken);
      if (this.#rest.length === 4) this.#word();
    }
    const whole = bytes.length & ~3;
    if (whole) this.queue.writeBuffer(this.buffer, this.at, bytes, 0, whole);
    this.at += whole;
    if (bytes.length > whole) this.#rest = bytes.slice(whole);
    if (last && this.#rest.length) this.#word();
  }

  #word() {
    const word = new Uint8Array(4);
    word.set(this.#rest);
    this.queue.writeBuffer(this.buffer, this.at, word);
    this.at += 4;
    this.#rest = new Uint8Array(0);
  }
}

/** Blocks that are hashed at a time, each a copy, while others are read. */
const HASHING = 4;

/**
 * `isKnown`: whether the server says that it is the file for which `tags` were kept.
 * @param {string | Blob | ArrayBuffer} source
 * @param {Record<string, string>} tags
 * @param {AbortSignal} [signal]
 * @returns {Promise<{stream: ReadableStream<any>, isKnown: boolean}>}
 */
async function opened(source, tags, signal) {
  if (typeof source !== 'string') {
    return { stream: (source instanceof Blob ? source : new Blob([source])).stream(), isKnown: false };
  }
  const response = await fetch(source, { signal });
  if (!response.ok || !response.body) throw new Refused(`the model cannot be fetched: HTTP status ${response.status}`);
  const tag = strongTag(response);
  return { stream: response.body, isKnown: tag !== '' && tags[source] === tag };
}

/**
 * The model's bytes, in blocks of `BLOCK`, each there until the next one is asked for.
 * @param {ReadableStream<any>} stream
 * @param {(loaded: number, total: number) => void} report
 * @param {number} nbytes that there should be
 */
async function* blocks(stream, report, nbytes) {
  const { read, cancel } = readerInto(stream);
  let buffer = new ArrayBuffer(BLOCK);
  try {
    for (let total = 0, isEnd = false; !isEnd;) {
      let filled = 0;
      while (filled < BLOCK) {
        const part = await read(new Uint8Array(buffer, filled, BLOCK - filled));
        buffer = part.buffer;
        filled += part.length;
        isEnd = !part.length;
        if (isEnd) break;
        if (total + filled > nbytes) throw new Refused('it is for another model: this one is larger');
        report(total + filled, nbytes);
      }
      total += filled;
      if (filled) yield new Uint8Array(buffer, 0, filled);
      if (isEnd && total !== nbytes) throw new Refused('it is for another model: this one is smaller');
    }
  } finally {
    cancel().catch(() => {});
  }
}

/** @typedef {{at: number, end: number, writer: Writer}} Waiting a constant, and where its file has it */

/**
 * Upload the constants; those that lie beside the plan from the model's files, whose hashes are compared on the way, where the
 * server does not say that they are the same.
 * @param {GPUDevice} device
 * @param {{header: import('./plan.js').Saved, sections: Uint8Array<ArrayBuffer>}} plan
 * @param {GPUBuffer[]} buffers
 * @param {(string | Blob | ArrayBuffer)[]} sources the model, and each of the plan's `files`
 * @param {(loaded: number, total: number) => void} report
 * @param {AbortSignal} [signal]
 * @param {Record<string, string>} [tags] strong ETags of files that had these hashes, by address
 */
export async function uploadConstants(device, { header, sections }, buffers, sources, report, signal, tags = {}) {
  const files = [header.model, ...header.files];
  /** @type {Waiting[][]} */
  const waiting = files.map(() => []);
  for (const [file, at, nbytes, buffer, place] of header.constants) {
    const writer = new Writer(device.queue, buffers[buffer], place);
    if (file) waiting[file - 1].push({ at, end: at + nbytes, writer });
    else writer.push(sections.subarray(at, at + nbytes), true);
  }
  if (header.model.inside) return;
  const total = files.reduce((sum, { nbytes }) => sum + nbytes, 0);
  let before = 0;
  for (const [i, { nbytes, hash }] of files.entries()) {
    const progress = (/** @type {number} */ loaded) => report(before + loaded, total);
    const { stream, isKnown } = await opened(sources[i], tags, signal);
    const made = await passed(blocks(stream, progress, nbytes), waiting[i], !isKnown);
    if (made !== null && made !== hash) {
      throw new Refused('it is for another model: the hash differs');
    }
    before += nbytes;
  }
}

/**
 * Write the constants of a file as it passes, and hash it meanwhile where that is wanted.
 * @param {AsyncIterable<Uint8Array<ArrayBuffer>>} file
 * @param {Waiting[]} waiting
 * @param {boolean} hashed
 * @returns {Promise<string | null>} the file's hash
 */
async function passed(file, waiting, hashed) {
  const sorted = [...waiting].sort((one, other) => one.at - other.at);
  /** @type {Promise<Uint8Array>[]} */
  const hashes = [];
  let [start, first] = [0, 0];
  for await (const block of file) {
    if (hashed) {
      const hash = crypto.subtle.digest('SHA-256', block).then((made) => new Uint8Array(made));
      hash.catch(() => {}); // awaited in its turn
      hashes.push(hash);
    }
    const stop = start + block.length;
    while (first < sorted.length && sorted[first].end <= start) first += 1;
    for (const { at, end, writer } of sorted.slice(first)) {
      if (at >= stop) break;
      if (end > start) writer.push(block.subarray(Math.max(at, start) - start, Math.min(end, stop) - start), end <= stop);
    }
    start = stop;
    if (hashes.length >= HASHING) await hashes[hashes.length - HASHING];
  }
  return hashed ? ofHashes((await Promise.all(hashes)).flatMap((hash) => [...hash])) : null;
}
