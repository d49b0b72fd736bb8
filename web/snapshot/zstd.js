// @ts-check
/** Decompress Zstandard, which DecompressionStream does not support, by the reference implementation in WebAssembly (npm's zstddec). */

/** Results of the library from this value on, as unsigned numbers, are errors. */
const FIRST_ERROR = 2 ** 32 - 200;

/** Words in the library's buffer descriptor: address, size, and bytes used. */
const BUFFER_WORDS = 3;

/** Decompresses one frame in this thread, as its bytes arrive. */
export class Decompressor {
  /**
   * @param {WebAssembly.Module} decoder
   * @param {Uint8Array[]} targets filled with the content, in order
   */
  constructor(decoder, targets) {
    // The decoder's memory never shrinks, so each frame has a separate one.
    const { exports } = new WebAssembly.Instance(decoder, { env: { emscripten_notify_memory_growth() {} } });
    const { malloc, memory, ZSTD_createDCtx, ZSTD_DStreamInSize, ZSTD_DStreamOutSize, ZSTD_decompressStream } = /** @type {any} */ (exports);
    /** @type {WebAssembly.Memory} */
    this.memory = memory;
    this.decode = ZSTD_decompressStream;
    this.context = ZSTD_createDCtx();
    this.inputSize = ZSTD_DStreamInSize();
    this.outputSize = ZSTD_DStreamOutSize();
    this.input = malloc(this.inputSize);
    this.output = malloc(this.outputSize);
    /** Addresses of the ZSTD_inBuffer and ZSTD_outBuffer structs. */
    this.source = malloc(4 * BUFFER_WORDS);
    this.target = malloc(4 * BUFFER_WORDS);
    this.targets = targets.filter(({ length }) => length);
    /** Number of full targets. */
    this.full = 0;
    /** Bytes written to the next target. */
    this.filled = 0;
    /** Whether the frame is complete. */
    this.complete = false;
  }

  /** Decompress the frame's next bytes. @param {Uint8Array} packed */
  push(packed) {
    for (let offset = 0; offset < packed.length; offset += this.inputSize) {
      const piece = packed.subarray(offset, offset + this.inputSize);
      new Uint8Array(this.memory.buffer).set(piece, this.input);
      this.#describe(this.source, this.input, piece.length);
      // A full output buffer may mean that more output is pending.
      for (let more = true; more || this.#used(this.source) < piece.length;) {
        this.#describe(this.target, this.output, this.outputSize);
        const expected = this.decode(this.context, this.target, this.source) >>> 0;
        if (expected >= FIRST_ERROR) throw new Error('damaged data in Zstandard');
        const made = this.#used(this.target);
        this.#write(new Uint8Array(this.memory.buffer, this.output, made));
        this.complete = expected === 0;
        more = made === this.outputSize && !this.complete;
      }
    }
  }

  /** Check that all bytes have arrived. */
  end() {
    if (!this.complete || this.full < this.targets.length) throw new Error('data in Zstandard that ends too early');
  }

  /** @param {Uint8Array} content */
  #write(content) {
    while (content.length) {
      const target = this.targets[this.full];
      if (!target) throw new Error('more data in Zstandard than expected');
      const part = content.subarray(0, target.length - this.filled);
      target.set(part, this.filled);
      this.filled += part.length;
      content = content.subarray(part.length);
      if (this.filled < target.length) continue;
      this.full += 1;
      this.filled = 0;
    }
  }

  /** @param {number} place @param {number} address @param {number} size */
  #describe(place, address, size) {
    new Uint32Array(this.memory.buffer, place, BUFFER_WORDS).set([address, size, 0]);
  }

  /** @param {number} place of a buffer's description */
  #used(place) {
    return new Uint32Array(this.memory.buffer, place, BUFFER_WORDS)[2];
  }
}

/**
 * @param {WebAssembly.Module} decoder
 * @param {Uint8Array} packed
 * @param {number} size size of the content
 * @returns {Uint8Array} the content
 */
export function decompress(decoder, packed, size) {
  const content = new Uint8Array(size);
  const decompressor = new Decompressor(decoder, [content]);
  decompressor.push(packed);
  decompressor.end();
  return content;
}
