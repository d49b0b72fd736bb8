// y[b, m, n] = finish(sum over k of (a[b, m, k] - a_zero) * (b[b, k, n] - b_zero)), ROWS rows of four columns an invocation, no
// workgroup memory: for adapters that run on a processor, which multiply floats faster than bytes.
//
// Exact all the same: products of differences of bytes are below 2^16, so f32 holds the sums of 256 of them.
//#tensors a, b, a_zero, b_zero -> y
//#variants WORDS_A=1,WORDS_B=1,VEC_Y=1,UNSIGNED_A=1,ZERO_A=1 a=uint32 b=uint32 a_zero=uint8 y=int32 | ROWS=8,TRANS_B=1 a=int8 b=uint8 y=int32
//#variants ROWS=1,UNSIGNED_B=1,ZERO_B=1 a=int8 b=uint8 b_zero=uint8 y=int32
const ROWS: u32 = 4u;
const EXACT: u32 = 64u;

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
  batch: vec4<u32>,
  a_strides: vec4<u32>,
  b_strides: vec4<u32>,
  offset_a: i32,
  offset_b: i32,
  b_zero_stride: u32,
  pad2: u32,
}

fn finish(value: vec4<T>, row: u32, col: u32) -> vec4<T> {
  return value;
}

//#include integer_operands

fn keep(batch: u32, m: u32, n: u32, value: vec4<T>) {
  if (m >= params.m) { return; }
  let row = batch * params.m + m;
  let v = finish(value, row, n);
  let at = row * params.n + n;
//#if VEC_Y
  store4_y(at >> 2u, v[0], v[1], v[2], v[3]);
//#else
  store_y(at, v[0]);
  if (n + 1u < params.n) { store_y(at + 1u, v[1]); }
  if (n + 2u < params.n) { store_y(at + 2u, v[2]); }
  if (n + 3u < params.n) { store_y(at + 3u, v[3]); }
//#endif
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let job = global_index(gid, nwg, 64u);
  if (job >= params.jobs) { return; }
  let line = job / params.columns;
  let n = (job - line * params.columns) * 4u;
  let batch = line / params.rows;
  let m = (line - batch * params.rows) * ROWS;
  let base_a = batch_base(batch, params.a_strides);
  let base_b = batch_base(batch, params.b_strides);
  // Flipped bytes, flipped again, are unsigned: 128 more.
  let from_b = powers_8();
  let zero_b = vec4<f32>(zeros_b(n) + 128);
  var rows: array<u32, ROWS>;
  var from_a: array<vec4<f32>, ROWS>;
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
    rows[r] = min(m + r, params.m - 1u);
    from_a[r] = powers_8() + f32(zero_a(rows[r]) + 128);
  }
  var sums: array<vec4<i32>, ROWS>;
  for (var first = 0u; first < params.words; first += EXACT) {
    var parts = array<vec4<f32>, ROWS>();
    let end = min(first + EXACT, params.words);
    for (var word = first; word < end; word++) {
      let inside = vec4<bool>(vec4<u32>(inside_k(word)) & vec4<u32>(0xffu, 0xff00u, 0xff0000u, 0xff000000u));
//#if TRANS_B
      let right = columns_b(base_b, word, n) ^ vec4<u32>(0x80808080u);
      let b0 = select(vec4<f32>(), weights_8(right[0], from_b + zero_b[0]), inside);
      let b1 = select(vec4<f32>(), weights_8(right[1], from_b + zero_b[1]), inside);
      let b2 = select(vec4<f32>(), weights_8(right[2], from_b + zero_b[2]), inside);
      let b3 = select(vec4<f32>(), weights_8(right[3], from_b + zero_b[3]), inside);
      //#unroll
      for (var r = 0u; r < ROWS; r++) {
        let left = weights_8(word_a(base_a, rows[r], word) ^ 0x80808080u, from_a[r]);
        parts[r] += vec4<f32>(dot(left, b0), dot(left, b1), dot(left, b2), dot(left, b3));
      }
//#else
      let k = word * 4u;
      let b0 = weights_8(row_b(base_b, k, n) ^ 0x80808080u, from_b + zero_b);
      let b1 = select(vec4<f32>(), weights_8(row_b(base_b, k + 1u, n) ^ 0x80808080u, from_b + zero_b), inside[1]);
      let b2 = select(vec4<f32>(), weights_8(row_b(base_b, k + 2u, n) ^ 0x80808080u, from_b + zero_b), inside[2]);
      let b3 = select(vec4<f32>(), weights_8(row_b(base_b, k + 3u, n) ^ 0x80808080u, from_b + zero_b), inside[3]);
      //#unroll
      for (var r = 0u; r < ROWS; r++) {
        let left = weights_8(word_a(base_a, rows[r], word) ^ 0x80808080u, from_a[r]);
        parts[r] += left[0] * b0 + left[1] * b1 + left[2] * b2 + left[3] * b3;
      }
//#endif
    }
    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      sums[r] += vec4<i32>(parts[r]);
    }
  }
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
    keep(batch, m + r, n, sums[r]);
  }
}
