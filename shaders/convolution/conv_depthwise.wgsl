// y[n, m, h, w] = finish(sum over kh, kw of w[m, kh, kw] * x[n, m / multiplier, h * stride - pad + kh, ..] + bias[m])
//
// Depthwise convolution in two dimensions without dilation. One invocation makes four neighbours of a row and reads
// each input they share once: 3 * STRIDE + KW columns a kernel row.
//   finish  is the epilogue: fusion replaces it (activation, residual)
//
// FALLBACK: `kernels/ir/fallback.py`.
//#tensors x, w, bias -> y
//#type ACC = y
const KH: u32 = 3u;
const KW: u32 = 3u;
const STRIDE: u32 = 1u;

const COLUMNS: u32 = 3u * STRIDE + KW;

struct Params {
  input: vec4<u32>,     // height, width, channels, images
  output: vec4<u32>,    // height, width, channels, quads of four in a row
  pads: vec4<i32>,      // height, width
  window: vec4<u32>,    // height, width; strides of both
  multiplier: u32,      // output channels an input channel
  jobs: u32,            // images * output channels * height * quads
}

fn finish(value: ACC, channel: u32, index: u32) -> ACC { return value; }

// Four neighbours: in which row of y, from which column on, of which channel; where in x their windows begin.
struct Four {
  line: u32,
  first: u32,
  m: u32,
  plane: u32,           // the row of x that is its channel's first
  h0: i32,
  w0: i32,
}

fn four_of(job: u32) -> Four {
//#include depthwise_place
  let h0 = i32(oh * params.window.z) - params.pads.x;
  return Four(line, first, m, plane, h0, i32(first * params.window.w) - params.pads.y);
}

fn emit(sums: vec4<ACC>, four: Four) {
  var sum = sums;
//#if BIAS
  sum += ACC(load_bias(four.m));
//#endif
  let at = four.line * params.output.y + four.first;
//#include store_four v=sum m=four.m first=four.first width=params.output.y
}

//#include optimized
@compute @workgroup_size(64)
//#include invocation job=job size=64u jobs=jobs
  let four = four_of(job);
  var sum = vec4<ACC>(0);
  var row: array<ACC, COLUMNS>;
  for (var kh = 0u; kh < KH; kh++) {
    let h = u32(four.h0 + i32(kh));
    if (h >= params.input.x) { continue; }
    let start = (four.plane + h) * params.input.y;
    for (var c = 0u; c < COLUMNS; c++) {
      let w = u32(four.w0 + i32(c));
      let inside = w < params.input.y;
      row[c] = select(ACC(0), ACC(load_x(start + select(0u, w, inside))), inside);
    }
    for (var kw = 0u; kw < KW; kw++) {
      let weight = ACC(load_w((four.m * KH + kh) * KW + kw));
      sum += weight * vec4<ACC>(row[kw], row[kw + STRIDE], row[kw + 2u * STRIDE], row[kw + 3u * STRIDE]);
    }
  }
  emit(sum, four);
}
//#include fallback
//#include conv_depthwise_fallback
//#include fallback_end
