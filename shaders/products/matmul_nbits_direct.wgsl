// y[m, n] = finish(sum over k of a[m, k] * (b[n, k] - zero) * scale), ROWS rows of four columns an invocation, no
// workgroup memory: for adapters that run on a processor. b, ZEROS, FLOAT_ZEROS: as matmul_nbits_skinny.wgsl has them.
// CODES: as there too, where rows and blocks are whole steps of STEP weights; else a step is a block.
// The order of a result's sum does not depend on ROWS.
//#tensors a, b, scales, zeros -> y
//#type T = y
const BITS: u32 = 4u;
const BLOCK: u32 = 32u;
const ROWS: u32 = 4u;
const STEP: u32 = BLOCK;

const PER: u32 = 8u / BITS;
const WORDS: u32 = STEP * BITS / 32u;
const MASK: u32 = (1u << BITS) - 1u;

struct Params {
  m: u32,
  n: u32,
  k: u32,
  blocks: u32,
  zero_pitch: u32,
  columns: u32,
  jobs: u32,
}

//#include finish_quad

//#include nbits_row_quads

fn zero_of(n: u32, block: u32) -> f32 {
//#if CODES
  return 0.0;
//#elif FLOAT_ZEROS
  return f32(load_zeros(n * params.blocks + block));
//#elif ZEROS
  let bit = block * BITS;
  return f32((load_zeros(n * params.zero_pitch + (bit >> 3u)) >> (bit & 7u)) & MASK);
//#else
  return f32(1u << (BITS - 1u));
//#endif
}

fn powers() -> vec4<f32> {
//#if BITS8
  return powers_8();
//#elif BITS2
  return powers_2();
//#else
  return powers_4();
//#endif
}

// The four weights in the low bits of `word`.
fn quad_b(word: u32) -> vec4<T> {
//#include weight_quads base=powers()
}

//#include nbits_put

@compute @workgroup_size(64)
//#include invocation job=job size=64u jobs=jobs
  let line = job / params.columns;
  let n = (job - line * params.columns) * 4u;
  let m = line * ROWS;
  let top = params.m - 1u;
  let last = params.n - 1u;
  let cols = vec4<u32>(n, min(n + 1u, last), min(n + 2u, last), min(n + 3u, last));
  var sums: array<vec4<T>, ROWS>;
  for (var block = 0u; block < params.blocks; block++) {
    let at = cols * params.blocks + block;
    let group = at / (BLOCK / STEP);
    let scale = vec4<T>(T(load_scales(group[0])), T(load_scales(group[1])), T(load_scales(group[2])), T(load_scales(group[3])));
    let zero = vec4<T>(zero_of(cols[0], block), zero_of(cols[1], block), zero_of(cols[2], block), zero_of(cols[3], block));
    var parts = array<vec4<T>, ROWS>();
    for (var i = 0u; i < WORDS; i++) {
      let k = block * STEP + i * 32u / BITS;
      let words = vec4<u32>(
        load_b(at[0] * WORDS + i), load_b(at[1] * WORDS + i), load_b(at[2] * WORDS + i), load_b(at[3] * WORDS + i));
      for (var q = 0u; q < PER; q++) {
        let shifted = words >> vec4<u32>(q * 4u * BITS);
        let b0 = quad_b(shifted[0]) - zero[0];
        let b1 = quad_b(shifted[1]) - zero[1];
        let b2 = quad_b(shifted[2]) - zero[2];
        let b3 = quad_b(shifted[3]) - zero[3];
        //#unroll
        for (var r = 0u; r < ROWS; r++) {
          let left = quad_a(min(m + r, top), k + q * 4u);
          parts[r] += vec4<T>(dot(left, b0), dot(left, b1), dot(left, b2), dot(left, b3));
        }
      }
    }
    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      sums[r] += parts[r] * scale;
    }
  }
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
    put(m + r, n, sums[r]);
  }
}
