// y[n, m, h, w] = finish(sum over kh, kw of (w[m, kh, kw] - w_zero) * (x[n, m / multiplier, h * stride - pad + kh, ..] - x_zero))
//
// Depthwise int8 convolution in two dimensions without dilation, for adapters that run on a processor. One
// invocation makes four neighbours of a row and reads each input they share once: 3 * STRIDE + KW columns a kernel row.
// A word of w is a filter position. f32 holds the sums of 256 products of differences of int8 numbers exactly.
//   EVEN    rows of x are whole words, and are read as such: a column has its place in a word whatever the row
//   finish  is the epilogue: fusion replaces it
//#tensors x, w, x_zero_point, w_zero_point -> y
const WG: u32 = 64u;
const KH: u32 = 3u;
const KW: u32 = 3u;
const STRIDE: u32 = 1u;
const PAD: u32 = 0u;
const BEFORE: u32 = 0u; // words that have the padding's place

const COLUMNS: u32 = 3u * STRIDE + KW;
const SKIPPED: u32 = 4u * BEFORE - PAD;
const WORDS: u32 = (COLUMNS + SKIPPED + 3u) / 4u;

alias ACC = i32;

struct Params {
  input: vec4<u32>,     // height, width, channels, images
  output: vec4<u32>,    // height, width, channels, quads of four in a row
  pads: vec4<i32>,      // height, width
  stride: u32,          // of rows
  multiplier: u32,      // output channels an input channel
  jobs: u32,            // images * output channels * height * quads
  zero_stride: u32,     // 1: w_zero_point has one element an output channel
}

fn finish(value: ACC, channel: u32, index: u32) -> ACC { return value; }

fn x_zero() -> u32 {
//#if ZERO_X
  return u32(load_x_zero_point(0u)) & 255u;
//#else
  return 0u;
//#endif
}

fn w_zero(m: u32) -> f32 {
//#if ZERO_W
  return f32(load_w_zero_point(m * params.zero_stride));
//#else
  return 0.0;
//#endif
}

// The byte at the top of a word.
fn top_x(word: u32) -> f32 {
//#if SIGNED_X
  return f32(bitcast<i32>(word) >> 24u);
//#else
  return f32(bitcast<i32>(word >> 24u));
//#endif
}

fn low_w(word: u32) -> f32 {
//#if SIGNED_W
  return f32(bitcast<i32>(word << 24u) >> 24u);
//#else
  return f32(bitcast<i32>(word & 255u));
//#endif
}

@compute @workgroup_size(WG)
//#include invocation job=job size=WG jobs=jobs
//#include depthwise_place
  let outside = x_zero() * 0x01010101u;
  let zero = top_x(outside);
  let offset = w_zero(m);
//#if EVEN
  let pitch = params.input.y / 4u;
  let left = first * STRIDE / 4u - BEFORE;
//#else
  let left = u32(i32(first * STRIDE) - params.pads.y);
//#endif

  var h = u32(i32(oh * params.stride) - params.pads.x);
  var position = m * KH * KW;
  var sum = vec4<f32>();
  var row: array<f32, COLUMNS>;
  for (var kh = 0u; kh < KH; kh++) {
    let within = h < params.input.x;
//#if EVEN
    let start = (plane + h) * pitch;
    var words: array<u32, WORDS>;
    //#unroll
    for (var i = 0u; i < WORDS; i++) {
      let at = left + i;
      let inside = within & (at < pitch);
      words[i] = select(outside, load_x(select(0u, start + at, inside)), inside);
    }
    //#unroll
    for (var c = 0u; c < COLUMNS; c++) {
      row[c] = top_x(words[(c + SKIPPED) / 4u] << (24u - (c + SKIPPED) % 4u * 8u)) - zero;
    }
//#else
    let start = (plane + h) * params.input.y;
    //#unroll
    for (var c = 0u; c < COLUMNS; c++) {
      let inside = within & (left + c < params.input.y);
      let at = select(0u, start + left + c, inside);
      let high = select(load_x(at / 4u) << 16u, load_x(at / 4u), (at & 2u) != 0u);
      row[c] = select(0.0, top_x(select(high << 8u, high, (at & 1u) != 0u)) - zero, inside);
    }
//#endif
    //#unroll
    for (var kw = 0u; kw < KW; kw++) {
      let weight = low_w(load_w(position + kw)) - offset;
      sum += weight * vec4<f32>(row[kw], row[kw + STRIDE], row[kw + 2u * STRIDE], row[kw + 3u * STRIDE]);
    }
    position += KW;
    h += 1u;
  }
  let v = vec4<i32>(sum);
  let at = line * params.output.y + first;
//#include store_four v=v m=m first=first width=params.output.y
}
