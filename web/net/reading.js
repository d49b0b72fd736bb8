// @ts-check
/** Read streams into reused buffers. */

/**
 * Streams with pending reads: Chromium garbage collects the stream of a Blob that only pending reads reference, and the reads never end.
 * @type {Set<object>}
 */
const held = new Set();

/**
 * Keep a reader alive until its stream has ended, was cancelled or has failed.
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
 * Reads into a block; returns the bytes read, none at the end, in the transferred memory of the block.
 * @typedef {(block: Uint8Array<ArrayBuffer>) => Promise<Uint8Array<ArrayBuffer>>} Read
 */

/**
 * Return a function that reads a stream into the caller's memory; directly, if the browser supports it.
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
 * Fill the buffer, or read up to the end of the stream; the result is in its transferred memory.
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

/** Pool of buffers of one size, so that reading leaves no garbage. */
export class Buffers {
  /** @type {ArrayBuffer[]} */
  #free = [];

  /** @param {number} [size] bytes of each buffer, and between progress events */
  constructor(size = 1 << 20) {
    this.size = size;
  }

  take() {
    return this.#free.pop() ?? new ArrayBuffer(this.size);
  }

  /** @param {ArrayBuffer} buffer a buffer that is no longer used; other sizes are dropped */
  give(buffer) {
    if (buffer.byteLength === this.size) this.#free.push(buffer);
  }
}
