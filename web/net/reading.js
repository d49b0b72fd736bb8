// @ts-check
/** Read streams into reused buffers. */

/** Streams with pending reads: Chromium collects the stream of a Blob that only its pending reads hold, and these never end. @type {Set<object>} */
const held = new Set();

/**
 * The reader, which stays until its stream is at its end, cancelled or broken.
 * @template {ReadableStreamDefaultReader<any> | ReadableStreamBYOBReader} R
 * @param {R} reader
 * @returns {R}
 */
export function reading(reader) {
  held.add(reader);
  const over = () => held.delete(reader);
  reader.closed.then(over, over);
  return reader;
}

/**
 * What reads into as much of `block` as it likes: the bytes read, none at the end, in memory that has taken the block's place.
 * @typedef {(block: Uint8Array<ArrayBuffer>) => Promise<Uint8Array<ArrayBuffer>>} Read
 */

/**
 * Reads a stream into memory of the caller's. Where the browser can, bytes come right into it.
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} stream
 * @returns {{read: Read, cancel: () => Promise<void>}}
 */
export function readerInto(stream) {
  try {
    const reader = reading(stream.getReader({ mode: 'byob' }));
    return { read: async (block) => (await reader.read(block)).value ?? new Uint8Array(), cancel: () => reader.cancel() };
  } catch {} // not a byte stream
  const reader = reading(stream.getReader());
  /** @type {Uint8Array<ArrayBuffer>} */
  let rest = new Uint8Array();
  return {
    async read(block) {
      if (!rest.length) rest = (await reader.read()).value ?? rest;
      const taken = rest.subarray(0, block.length);
      rest = rest.subarray(taken.length);
      block.set(taken);
      return block.subarray(0, taken.length);
    },
    cancel: () => reader.cancel(),
  };
}

/**
 * As many bytes as the buffer has, or those before the end, in memory that has taken its place.
 * @param {Read} read
 * @param {ArrayBuffer} buffer
 */
export async function filled(read, buffer) {
  const size = buffer.byteLength;
  let count = 0;
  while (count < size) {
    const part = await read(new Uint8Array(buffer, count));
    buffer = part.buffer;
    if (!part.length) break;
    count += part.length;
  }
  return new Uint8Array(buffer, 0, count);
}

/** Buffers of one size that are used again: what is read through them leaves nothing for the garbage collector. */
export class Buffers {
  /** @type {ArrayBuffer[]} */
  #free = [];

  /** @param {number} [size] bytes of each, and of a step of progress */
  constructor(size = 1 << 20) {
    this.size = size;
  }

  take() {
    return this.#free.pop() ?? new ArrayBuffer(this.size);
  }

  /** @param {ArrayBuffer} buffer that is no longer read; buffers of other sizes are dropped */
  give(buffer) {
    if (buffer.byteLength === this.size) this.#free.push(buffer);
  }
}
