// @ts-check
/** Upload a plan's constants to the GPU from the model's bytes, while these arrive. */

import { Refused } from './plan.js';
import { BLOCK, ofHashes } from './treehash.js';
import { Buffers, filled, readerInto } from '../net/reading.js';
import { strongTag } from '../net/tags.js';

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
 * @param {Buffers} buffers that the chunks are in
 * @param {AbortSignal} [signal]
 * @param {RequestCache} [cache]
 * @returns {Promise<{chunks: AsyncIterable<Uint8Array<ArrayBuffer>>, isKnown: boolean}>}
 */
async function opened(source, tags, buffers, signal, cache) {
  if (typeof source !== 'string') {
    return { chunks: through((source instanceof Blob ? source : new Blob([source])).stream(), buffers), isKnown: false };
  }
  const { openStream } = await import('../net/stream.js');
  const { response, chunks } = await openStream(source, signal, cache);
  const tag = strongTag(response);
  return { chunks: chunks(buffers), isKnown: cache !== 'reload' && tag !== '' && tags[source] === tag };
}

/** @param {ReadableStream<any>} stream @param {Buffers} buffers */
async function* through(stream, buffers) {
  const { read, cancel } = readerInto(stream);
  try {
    for (;;) {
      const chunk = await filled(read, buffers.take());
      if (!chunk.length) return;
      yield chunk;
    }
  } finally {
    cancel().catch(() => {});
  }
}

/**
 * The model's bytes, in blocks of `BLOCK`, each valid until the next one is requested.
 * @param {AsyncIterable<Uint8Array<ArrayBuffer>>} chunks as large, as long as the connection holds
 * @param {Buffers} buffers that they are in
 * @param {(loaded: number) => void} report
 * @param {number} nbytes that there should be
 */
async function* blocks(chunks, buffers, report, nbytes) {
  /** @type {Uint8Array<ArrayBuffer>} */
  let rest = new Uint8Array();
  let total = 0;
  for await (const chunk of chunks) {
    total += chunk.length;
    if (total > nbytes) throw new Refused('it is for another model: this one is larger');
    report(total);
    let left = chunk;
    while (left.length) {
      let block = left;
      if (rest.length || left.length < BLOCK) {
        block = new Uint8Array(Math.min(BLOCK, rest.length + left.length));
        block.set(rest);
        block.set(left.subarray(0, block.length - rest.length), rest.length);
      } else block = left.subarray(0, BLOCK);
      left = left.subarray(block.length - rest.length);
      rest = new Uint8Array();
      if (block.length === BLOCK) yield block;
      else rest = block;
    }
    buffers.give(chunk.buffer);
  }
  if (rest.length) yield rest;
  if (total !== nbytes) throw new Refused('it is for another model: this one is smaller');
}

/** @typedef {{at: number, end: number, buffer: number, place: number, writer?: Writer}} Waiting a constant, and where its file has it */

/**
 * Upload the constants; those outside the plan come from the model's files, whose hashes are verified in passing unless the
 * server's ETags say that they are the same.
 * @param {GPUDevice} device
 * @param {{header: import('./plan.js').Saved, sections: Uint8Array<ArrayBuffer>}} plan
 * @param {import('./constants.js').Constants} constants
 * @param {(string | Blob | ArrayBuffer)[]} sources the model, and each of the plan's `files`
 * @param {(loaded: number, total: number) => void} report
 * @param {AbortSignal} [signal]
 * @param {Record<string, string>} [tags] strong ETags of files that had these hashes, by address
 */
export async function uploadConstants(device, { header, sections }, constants, sources, report, signal, tags = {}) {
  const files = [header.model, ...header.files];
  const total = files.reduce((sum, { nbytes }) => sum + nbytes, 0);
  const read = async (/** @type {RequestCache | undefined} */ cache = undefined) => {
    if (cache) await constants.begin(); // a file changed while it was read
    /** @type {Waiting[][]} those of the plan, and of each file */
    const waiting = [[], ...files.map(() => [])];
    for (const [file, at, nbytes, buffer, place] of header.constants) waiting[file].push({ at, end: at + nbytes, buffer, place });
    const passed = (/** @type {Blocks} */ file, /** @type {Waiting[]} */ of, /** @type {boolean} */ hashed) => (
      pass(device.queue, file, of, constants, hashed));
    await passed([sections], waiting[0], false);
    if (header.model.inside) return;
    let before = 0;
    for (const [i, { nbytes, hash }] of files.entries()) {
      const progress = (/** @type {number} */ loaded) => report(before + loaded, total);
      const buffered = new Buffers(BLOCK);
      const { chunks, isKnown } = await opened(sources[i], tags, buffered, signal, cache);
      const made = await passed(blocks(chunks, buffered, progress, nbytes), waiting[i + 1], !isKnown);
      if (made !== null && made !== hash) throw new Refused('it is for another model: the hash differs');
      before += nbytes;
    }
  };
  const isFetched = !header.model.inside && sources.some((source) => typeof source === 'string');
  await (isFetched ? (await import('../net/stream.js')).anew(read) : read());
}

/** @typedef {AsyncIterable<Uint8Array<ArrayBuffer>> | Uint8Array<ArrayBuffer>[]} Blocks */

/**
 * Write the constants of a file as it passes, and hash it meanwhile where that is wanted.
 * @param {GPUQueue} queue
 * @param {Blocks} file
 * @param {Waiting[]} waiting
 * @param {import('./constants.js').Constants} constants
 * @param {boolean} hashed
 * @returns {Promise<string | null>} the file's hash
 */
async function pass(queue, file, waiting, constants, hashed) {
  const sorted = waiting.filter(({ at, end }) => end > at).sort((one, other) => one.at - other.at);
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
    for (const one of sorted.slice(first)) {
      const { at, end, buffer, place } = one;
      if (at >= stop) break;
      if (end <= start) continue;
      one.writer ??= new Writer(queue, await constants.bufferFor(buffer), place);
      one.writer.push(block.subarray(Math.max(at, start) - start, Math.min(end, stop) - start), end <= stop);
      if (end <= stop) await constants.arrived(buffer);
    }
    start = stop;
    if (hashes.length >= HASHING) await hashes[hashes.length - HASHING];
  }
  return hashed ? ofHashes((await Promise.all(hashes)).flatMap((hash) => [...hash])) : null;
}
