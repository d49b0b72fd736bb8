// @ts-check
/** Constants of a compiled model to the GPU, from the model's bytes as they arrive. */

import { Refused } from './plan.js';
import { BLOCK, ofHashes } from './treehash.js';

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

/**
 * The model's bytes, in blocks of `BLOCK`.
 * @param {string | Blob | ArrayBuffer} source
 * @param {(loaded: number, total: number) => void} report
 * @param {number} nbytes that there should be
 * @param {AbortSignal} [signal]
 */
async function* blocks(source, report, nbytes, signal) {
  /** @type {ReadableStream<Uint8Array> | null} */
  let stream;
  if (typeof source === 'string') {
    const response = await fetch(source, { signal });
    if (!response.ok) throw new Refused(`the model cannot be fetched: HTTP status ${response.status}`);
    stream = response.body;
  } else {
    stream = (source instanceof Blob ? source : new Blob([source])).stream();
  }
  const reader = /** @type {ReadableStream<Uint8Array>} */ (stream).getReader();
  let block = new Uint8Array(Math.min(BLOCK, nbytes));
  let [filled, total] = [0, 0];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      total += value.length;
      if (total > nbytes) throw new Refused('it is for another model: this one is larger');
      for (let at = 0; at < value.length;) {
        const part = value.subarray(at, at + block.length - filled);
        block.set(part, filled);
        filled += part.length;
        at += part.length;
        if (filled === block.length) {
          yield block;
          block = new Uint8Array(Math.min(BLOCK, nbytes - total + value.length - at));
          filled = 0;
        }
      }
      report(total, nbytes);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  if (total !== nbytes) throw new Refused('it is for another model: this one is smaller');
}

/** @typedef {{at: number, end: number, writer: Writer}} Waiting a constant, and where its file has it */

/**
 * Upload the constants; those that lie beside the plan from the model's files, whose hashes are compared on the way.
 * @param {GPUDevice} device
 * @param {{header: import('./plan.js').Saved, sections: Uint8Array<ArrayBuffer>}} plan
 * @param {GPUBuffer[]} buffers
 * @param {(string | Blob | ArrayBuffer)[]} sources the model, and each of the plan's `files`
 * @param {(loaded: number, total: number) => void} report
 * @param {AbortSignal} [signal]
 */
export async function uploadConstants(device, { header, sections }, buffers, sources, report, signal) {
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
    if (await passed(blocks(sources[i], progress, nbytes, signal), waiting[i]) !== hash) {
      throw new Refused('it is for another model: the hash differs');
    }
    before += nbytes;
  }
}

/**
 * Write the constants of a file as it passes.
 * @param {AsyncIterable<Uint8Array<ArrayBuffer>>} file
 * @param {Waiting[]} waiting
 * @returns {Promise<string>} the file's hash
 */
async function passed(file, waiting) {
  /** @type {number[]} */
  const hashes = [];
  let start = 0;
  for await (const block of file) {
    const hash = crypto.subtle.digest('SHA-256', block);
    const stop = start + block.length;
    for (const { at, end, writer } of waiting) {
      if (at < stop && end > start) {
        writer.push(block.subarray(Math.max(at, start) - start, Math.min(end, stop) - start), end <= stop);
      }
    }
    hashes.push(...new Uint8Array(await hash));
    start = stop;
  }
  return ofHashes(hashes);
}
