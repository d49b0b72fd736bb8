// @ts-check
/** Decompress Zstandard, which DecompressionStream lacks, by the reference implementation as WebAssembly (npm's zstddec). */

/**
 * Decompress in this thread, at once.
 * @param {WebAssembly.Module} decoder
 * @param {Uint8Array} packed
 * @param {number} size of the content
 * @returns {Uint8Array} the content, in memory that the caller alone holds
 */
export function decompress(decoder, packed, size) {
  // Its memory never shrinks, so each call has its own.
  const { exports } = new WebAssembly.Instance(decoder, { env: { emscripten_notify_memory_growth() {} } });
  const { malloc, memory, ZSTD_decompress } = /** @type {any} */ (exports);
  const [source, target] = [malloc(packed.length), malloc(size)];
  new Uint8Array(memory.buffer).set(packed, source);
  const made = ZSTD_decompress(target, size, source, packed.length) >>> 0;
  if (made !== size) throw new Error(`expected ${size} bytes in Zstandard, got ${made > size ? 'damaged data' : made}`);
  return new Uint8Array(memory.buffer, target, size);
}
