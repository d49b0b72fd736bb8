// y[b, m, n] = finish(sum over k of (a[b, m, k] - a_zero) * (b[b, k, n] - b_zero)), ROWS rows of four columns an invocation, no
// workgroup memory: for adapters that run on a processor, which multiply floats faster than bytes.
//
// Exact all the same: products of differences of int8 numbers are below 2^16, so f32 holds the sums of 256 of them. Such a processor
// has no loop-invariant code moved and every call inlined: addresses are stepped, and `finish` is there once.
// STEPPED: whole words of b, and of k. ALONE: one batch. ROW_ZEROS: a zero point for each row of a. ONCE: f32 holds the sums over all of k.
//#tensors a, b, a_zero, b_zero -> y
const WG: u32 = 64u;
const ROWS: u32 = 4u;
const EXACT: u32 = 64u;
const OWN_ZERO: u32 = 0u; // 1: of each row

alias T = i32;

struct Params {
  m: u32,
  n: u32,
  k: u32,
  words: u32,
  columns: u32,
  rows: u32,
  jobs: u32,
  a_zero_stride: u32,
//#include batch_fields
  offset_a: i32,
  offset_b: i32,
  b_zero_stride: u32,
}

//#include finish_quad

//#include integer_operands
// Bytes of a word as unsigned ones: of signed ones 128 more, as it is of their zero points.
fn levels_a(word: u32) -> u32 {
//#if UNSIGNED_A
  return word;
//#else
  return word ^ 0x80808080u;
//#endif
}

fn levels_b(word: u32) -> u32 {
//#if UNSIGNED_B
  return word;
//#else
  return word ^ 0x80808080u;
//#endif
}

// Four numbers of a row of a, less their zero point; those past the end of k are any.
//#if WORDS_A
fn quad_a(at: u32, row: u32, word: u32, base: vec4<f32>) -> vec4<f32> {
  return weights_8(levels_a(load_a(at + word)), base);
}
//#else
fn quad_a(at: u32, row: u32, word: u32, base: vec4<f32>) -> vec4<f32> {
  return weights_8(word_a(at, row, word) ^ 0x80808080u, base);
}
//#endif

//#include put_quad

@compute @workgroup_size(WG)
//#include invocation job=job size=WG jobs=jobs
  let line = job / params.columns;
  let n = (job - line * params.columns) * 4u;
//#if ALONE
  let batch = 0u;
  let m = line * ROWS;
  let base_a = 0u;
  let base_b = 0u;
//#else
  let batch = line / params.rows;
  let m = (line - batch * params.rows) * ROWS;
  let base_a = batch_base(batch, params.a_strides);
  let base_b = batch_base(batch, params.b_strides);
//#endif
  // What the flip took off unsigned numbers and zero points, or what signed ones have more here.
  let zero_b = vec4<f32>(zeros_b(n) + 128);
  let from_b = powers_8() + zero_b;
  var rows: array<u32, ROWS>;
  var at_a: array<u32, ROWS>;
//#if ROW_ZEROS
  var from_a: array<vec4<f32>, ROWS>;
//#else
  var from_a: array<vec4<f32>, 1>;
  from_a[0] = powers_8() + f32(zero_a(0u) + 128);
//#endif
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
    rows[r] = min(m + r, params.m - 1u);
//#if ROW_ZEROS
    from_a[r] = powers_8() + f32(zero_a(rows[r]) + 128);
//#endif
//#if WORDS_A
    at_a[r] = (base_a + rows[r] * params.k) / 4u;
//#else
    at_a[r] = base_a;
//#endif
  }
//#if STEPPED
  let step_b = params.n / 4u;
  var at_b = (base_b + n) / 4u;
//#endif
//#if ONCE
  {
    let first = 0u;
    let end = params.words;
//#else
  var sums: array<vec4<i32>, ROWS>;
  for (var first = 0u; first < params.words; first += EXACT) {
    let end = min(first + EXACT, params.words);
//#endif
    var parts = array<vec4<f32>, ROWS>();
    for (var word = first; word < end; word++) {
//#if TRANS_B
      let right = columns_b(base_b, word, n) ^ vec4<u32>(0x80808080u);
      var b0 = weights_8(right[0], powers_8() + zero_b[0]);
      var b1 = weights_8(right[1], powers_8() + zero_b[1]);
      var b2 = weights_8(right[2], powers_8() + zero_b[2]);
      var b3 = weights_8(right[3], powers_8() + zero_b[3]);
//#if !WORDS_A
      let inside = word * 4u + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.k);
      b0 = select(vec4<f32>(), b0, inside);
      b1 = select(vec4<f32>(), b1, inside);
      b2 = select(vec4<f32>(), b2, inside);
      b3 = select(vec4<f32>(), b3, inside);
//#endif
      //#unroll
      for (var r = 0u; r < ROWS; r++) {
        let left = quad_a(at_a[r], rows[r], word, from_a[r * OWN_ZERO]);
        parts[r] += vec4<f32>(dot(left, b0), dot(left, b1), dot(left, b2), dot(left, b3));
      }
//#else
//#if STEPPED
      let b0 = weights_8(levels_b(load_b(at_b)), from_b);
      let b1 = weights_8(levels_b(load_b(at_b + step_b)), from_b);
      let b2 = weights_8(levels_b(load_b(at_b + 2u * step_b)), from_b);
      let b3 = weights_8(levels_b(load_b(at_b + 3u * step_b)), from_b);
      at_b += 4u * step_b;
//#else
      let k = word * 4u;
      let b0 = weights_8(row_b(base_b, k, n) ^ 0x80808080u, from_b);
      let b1 = select(vec4<f32>(), weights_8(row_b(base_b, k + 1u, n) ^ 0x80808080u, from_b), k + 1u < params.k);
      let b2 = select(vec4<f32>(), weights_8(row_b(base_b, k + 2u, n) ^ 0x80808080u, from_b), k + 2u < params.k);
      let b3 = select(vec4<f32>(), weights_8(row_b(base_b, k + 3u, n) ^ 0x80808080u, from_b), k + 3u < params.k);
//#endif
      //#unroll
      for (var r = 0u; r < ROWS; r++) {
        let left = quad_a(at_a[r], rows[r], word, from_a[r * OWN_ZERO]);
        parts[r] += left[0] * b0 + left[1] * b1 + left[2] * b2 + left[3] * b3;
      }
//#endif
    }
//#if ONCE
    for (var r = 0u; r < ROWS; r++) {
      if (m + r < params.m) { put(batch * params.m + m + r, n, vec4<i32>(parts[r])); }
    }
  }
//#else
    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      sums[r] += vec4<i32>(parts[r]);
    }
  }
  for (var r = 0u; r < ROWS; r++) {
    if (m + r < params.m) { put(batch * params.m + m + r, n, sums[r]); }
  }
//#endif
}
