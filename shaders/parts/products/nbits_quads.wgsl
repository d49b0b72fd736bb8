// Four neighbours of a matrix b that is stored in 2, 4 or 8 bits or (CODES) in codes of a table.
//#if CODES
// Element `at` of b as it is stored.
fn element_b(at: u32) -> f32 {
  let code = (load_b(at >> 3u) >> (((at & 7u) * 4u) ^ 4u)) & 15u;
//#if NF4
  return nf4_value(code) * f32(load_scales(at / BLOCK));
//#else
  return fp4_value(code) * f32(load_scales(at / BLOCK));
//#endif
}

// TRANS_B: b[n, k .. k + 3]; else b[k, n .. n + 3].
fn quad_b(base: u32, k: u32, n: u32) -> vec4<T> {
//#if TRANS_B
  let at = min(n, params.n - 1u) * params.k;
  let first = k;
  let last = params.k - 1u;
//#else
  let at = min(k, params.k - 1u) * params.n;
  let first = n;
  let last = params.n - 1u;
//#endif
  return vec4<T>(
    element_b(at + min(first, last)), element_b(at + min(first + 1u, last)), element_b(at + min(first + 2u, last)),
    element_b(at + min(first + 3u, last)));
}
//#else
// b[n, k .. k + 3]; k is a multiple of four, so these lie in one word.
fn quad_b(base: u32, k: u32, n: u32) -> vec4<T> {
  let row = min(n, params.n - 1u);
  let at = min(k, params.b_words * (32u / BITS) - 4u);
  let word = load_b(row * params.b_words + at / (32u / BITS)) >> (at % (32u / BITS) * BITS);
//#if BITS8
  let v = weights_8(word, powers_8());
//#elif BITS2
  let v = weights_2(word, powers_2());
//#else
  let v = weights_4(word, powers_4());
//#endif
//#if GROUPED
  let last = params.k - 1u;
  let g = vec4<u32>(
    u32(load_group_of(min(at, last))), u32(load_group_of(min(at + 1u, last))),
    u32(load_group_of(min(at + 2u, last))), u32(load_group_of(min(at + 3u, last))));
  return vec4<T>(
    (v[0] - zero_of(row, g[0])) * scale_of(row, g[0]), (v[1] - zero_of(row, g[1])) * scale_of(row, g[1]),
    (v[2] - zero_of(row, g[2])) * scale_of(row, g[2]), (v[3] - zero_of(row, g[3])) * scale_of(row, g[3]));
//#else
  return (v - zero_of(row, at / BLOCK)) * scale_of(row, at / BLOCK);
//#endif
}

fn scale_of(n: u32, block: u32) -> f32 {
  return f32(load_scales(n * params.b_blocks + min(block, params.b_blocks - 1u)));
}

fn zero_of(n: u32, block: u32) -> f32 {
//#if FLOAT_ZEROS
  return f32(load_zeros(n * params.b_blocks + min(block, params.b_blocks - 1u)));
//#elif ZEROS
  let bit = min(block, params.b_blocks - 1u) * BITS;
  return f32((load_zeros(n * params.zero_pitch + (bit >> 3u)) >> (bit & 7u)) & MASK);
//#else
  return f32(1u << (BITS - 1u));
//#endif
}
//#endif
