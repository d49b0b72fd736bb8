// Weights of BITS bits as they are stored, a chunk at a time: UNIT words, which have one scale and one zero point.
fn chunk_b(i: u32) -> array<u32, UNIT> {
//#if UNIT4
  let w = load4_b(i);
  return array<u32, UNIT>(w.x, w.y, w.z, w.w);
//#elif UNIT2
  let w = load_b(i);
  return array<u32, UNIT>(w.x, w.y);
//#else
  return array<u32, UNIT>(load_b(i));
//#endif
}

// The scale of chunk `chunk` of column `n`.
fn scale_b(n: u32, chunk: u32) -> T {
//#if CODES
  return T(load_scales((n * params.chunks + chunk) / (BLOCK / CHUNK)));
//#else
  return T(load_scales(n * params.blocks + chunk / (BLOCK / CHUNK)));
//#endif
}

// The zero point of chunk `chunk` of column `n`.
fn zero_b(n: u32, chunk: u32) -> T {
  let block = chunk / (BLOCK / CHUNK);
//#if FLOAT_ZEROS
  return T(load_zeros(n * params.blocks + block));
//#elif ZEROS
  let bit = block * BITS;
  return T((load_zeros(n * params.zero_pitch + (bit >> 3u)) >> (bit & 7u)) & MASK);
//#else
  return T(1u << (BITS - 1u));
//#endif
}

// What is subtracted from the bits of weights whose zero point is `zero`.
fn base_b(zero: T) -> vec4<T> {
//#if BITS8
  return powers_8() + zero;
//#elif BITS2
  return powers_2() + zero;
//#else
  return powers_4() + zero;
//#endif
}

// The four weights in the low bits of `word`.
fn quad_b(word: u32, base: vec4<T>) -> vec4<T> {
//#include weight_quads base=base
}

// A chunk of each of COLS columns.
struct Chunks {
  words: array<array<u32, UNIT>, COLS>,
  scale: array<T, COLS>,
  zero: array<T, COLS>,
}

// Chunk `chunk` of columns n0, n0 + 1, ..., `last` at most; past the end the last chunk with scales of zero.
fn chunks_b(n0: u32, last: u32, chunk: u32) -> Chunks {
  let there = min(chunk, params.chunks - 1u);
  var made: Chunks;
  //#unroll
  for (var c = 0u; c < COLS; c++) {
    let n = min(n0 + c, last);
    made.words[c] = chunk_b(n * params.chunks + there);
    made.scale[c] = select(T(), scale_b(n, there), chunk < params.chunks);
    made.zero[c] = zero_b(n, there);
  }
  return made;
}
