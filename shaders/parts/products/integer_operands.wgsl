// Operands of int8 products, four of k in a word, as signed numbers: the sign bits of unsigned ones are flipped, which
// takes 128 from them and from their zero points. What is past the end of k is 0.
//
// WORDS_A, WORDS_B: rows are whole words (QUADS_A: whole vec4s of them), read as such; else byte by byte.
//#if UNSIGNED_A
const FLIP_A: u32 = 0x80808080u;
const SHIFT_A: i32 = -128i;
//#else
const FLIP_A: u32 = 0u;
const SHIFT_A: i32 = 0i;
//#endif
//#if UNSIGNED_B
const FLIP_B: u32 = 0x80808080u;
const SHIFT_B: i32 = -128i;
//#else
const FLIP_B: u32 = 0u;
const SHIFT_B: i32 = 0i;
//#endif

//#include batch_base

//#include dot_int8

// The bytes of word `word` that are not past the end of k.
fn inside_k(word: u32) -> u32 {
  let left = params.k - min(word * 4u, params.k);
  return select((1u << (8u * left)) - 1u, 0xffffffffu, left >= 4u);
}

fn byte_a(at: u32) -> u32 { return u32(load_a(at)) & 255u; }

fn byte_b(at: u32) -> u32 { return u32(load_b(at)) & 255u; }

// a[row, 4 word .. 4 word + 3]
fn word_a(base: u32, row: u32, word: u32) -> u32 {
  let start = base + row * params.k;
//#if WORDS_A
  return (load_a(start / 4u + min(word, params.words - 1u)) ^ FLIP_A) & inside_k(word);
//#else
  let last = params.k - 1u;
  let k = word * 4u;
  let w = byte_a(start + min(k, last)) | (byte_a(start + min(k + 1u, last)) << 8u)
    | (byte_a(start + min(k + 2u, last)) << 16u) | (byte_a(start + min(k + 3u, last)) << 24u);
  return (w ^ FLIP_A) & inside_k(word);
//#endif
}

// Words `word` to `word + 3` of a row of a; `word` is a multiple of four.
fn words_a(base: u32, row: u32, word: u32) -> vec4<u32> {
//#if QUADS_A
  let quads = params.words / 4u;
  let w = load4_a((base + row * params.k) / 16u + min(word / 4u, quads - 1u));
  return select(vec4<u32>(), w ^ vec4<u32>(FLIP_A), word < params.words);
//#else
  return vec4<u32>(
    word_a(base, row, word), word_a(base, row, word + 1u), word_a(base, row, word + 2u), word_a(base, row, word + 3u));
//#endif
}

//#if CONVOLUTION
// Columns are pixels, k is a channel and a filter position, which is innermost. `locate` sets where the first positions of four pixels lie.
var<private> first_d: vec4<i32>;
var<private> first_h: vec4<i32>;
var<private> first_w: vec4<i32>;

fn locate(n: u32) {
  let pixel = vec4<u32>(n, n + 1u, n + 2u, n + 3u);
  let line = pixel / params.output.z;
  let plane = line / params.output.y;
  first_w = vec4<i32>(pixel - line * params.output.z) * params.strides.z - params.pads.z;
  first_h = vec4<i32>(line - plane * params.output.y) * params.strides.y - params.pads.y;
  first_d = vec4<i32>(plane) * params.strides.x - params.pads.x;
}

// Four pixels at one k; the zero point outside the image.
fn row_b(base: u32, k: u32) -> u32 {
  let channel = k / POSITIONS;
  let position = k - channel * POSITIONS;
  let d = first_d + i32(position / (KH * KW) * params.dilations.x);
  let h = first_h + i32(position / KW % KH * params.dilations.y);
  let w = first_w + i32(position % KW * params.dilations.z);
  var inside = (vec4<u32>(h) < vec4<u32>(params.input.y)) & (vec4<u32>(w) < vec4<u32>(params.input.z));
  inside &= vec4<u32>(d) < vec4<u32>(params.input.x);
  inside &= vec4<bool>(k < params.k);
  let at = (d + i32(channel * params.input.x)) * i32(params.input.y) + h;
  let i = select(vec4<u32>(0u), vec4<u32>(at * i32(params.input.z) + w) + base, inside);
  let outside = vec4<u32>(zeros_b(0u) - SHIFT_B) & vec4<u32>(255u);
  let v = select(outside, vec4<u32>(byte_b(i[0]), byte_b(i[1]), byte_b(i[2]), byte_b(i[3])), inside);
  return select(0u, (v[0] | (v[1] << 8u) | (v[2] << 16u) | (v[3] << 24u)) ^ FLIP_B, k < params.k);
}

// Pixels n .. n + 3, of each the words 4 word .. 4 word + 3 of k.
fn columns_b(base: u32, word: u32, n: u32) -> vec4<u32> {
  let k = word * 4u;
  return transposed_bytes(row_b(base, k), row_b(base, k + 1u), row_b(base, k + 2u), row_b(base, k + 3u));
}
//#else
fn locate(n: u32) {}

//#if TRANS_B
// b[n, 4 word .. 4 word + 3], b stored [n, k]
fn column_b(base: u32, word: u32, n: u32) -> u32 {
  let start = base + min(n, params.n - 1u) * params.k;
//#if WORDS_B
  return (load_b(start / 4u + min(word, params.words - 1u)) ^ FLIP_B) & inside_k(word);
//#else
  let last = params.k - 1u;
  let k = word * 4u;
  let w = byte_b(start + min(k, last)) | (byte_b(start + min(k + 1u, last)) << 8u)
    | (byte_b(start + min(k + 2u, last)) << 16u) | (byte_b(start + min(k + 3u, last)) << 24u);
  return (w ^ FLIP_B) & inside_k(word);
//#endif
}

// Columns n .. n + 3 of b, of each b[4 word .. 4 word + 3]
fn columns_b(base: u32, word: u32, n: u32) -> vec4<u32> {
  return vec4<u32>(
    column_b(base, word, n), column_b(base, word, n + 1u), column_b(base, word, n + 2u), column_b(base, word, n + 3u));
}
//#else
// b[k, n .. n + 3], 0 past the end of k
fn row_b(base: u32, k: u32, n: u32) -> u32 {
  let start = base + min(k, params.k - 1u) * params.n;
//#if WORDS_B
  let w = load_b((start + min(n, params.n - 4u)) / 4u);
//#else
  let last = params.n - 1u;
  let w = byte_b(start + min(n, last)) | (byte_b(start + min(n + 1u, last)) << 8u)
    | (byte_b(start + min(n + 2u, last)) << 16u) | (byte_b(start + min(n + 3u, last)) << 24u);
//#endif
  return select(0u, w ^ FLIP_B, k < params.k);
}

// Columns n .. n + 3 of b, of each b[4 word .. 4 word + 3]
fn columns_b(base: u32, word: u32, n: u32) -> vec4<u32> {
  let k = word * 4u;
  return transposed_bytes(row_b(base, k, n), row_b(base, k + 1u, n), row_b(base, k + 2u, n), row_b(base, k + 3u, n));
}
//#endif
//#endif

// The zero points, of the flipped numbers.
fn zero_a(row: u32) -> i32 {
//#if ZERO_A
  return i32(load_a_zero(row * params.a_zero_stride)) + SHIFT_A;
//#else
  return params.offset_a + SHIFT_A;
//#endif
}

fn zeros_b(col: u32) -> vec4<i32> {
//#if ZERO_B
  let at = min(vec4<u32>(col, col + 1u, col + 2u, col + 3u), vec4<u32>(params.n - 1u)) * params.b_zero_stride;
  return vec4<i32>(
    i32(load_b_zero(at[0])), i32(load_b_zero(at[1])), i32(load_b_zero(at[2])), i32(load_b_zero(at[3]))) + SHIFT_B;
//#else
  return vec4<i32>(params.offset_b + SHIFT_B);
//#endif
}
