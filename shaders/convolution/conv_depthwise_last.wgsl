// y[n, h, w, c] = finish(sum over kh, kw of w[kh, kw, c] * x[n, h * stride - pad + kh * dilation, .., c] + bias[c])
//
// Depthwise convolution in two dimensions whose channels lie last. One invocation makes PIXELS neighbours of a row in
// four channels and reads each input they share once.
//   finish  is the epilogue: fusion replaces it (activation, residual)
// ROLLED: it is there once, in a loop whose count compilers do not know.
//#tensors x, w, bias -> y
//#type T = y
const KH: u32 = 3u;
const KW: u32 = 3u;
const STRIDE: u32 = 1u;
const DILATION: u32 = 1u;
const PIXELS: u32 = 4u;

const COLUMNS: u32 = (PIXELS - 1u) * STRIDE + (KW - 1u) * DILATION + 1u;

struct Params {
  input: vec4<u32>,     // height, width, channels in fours, images
  output: vec4<u32>,    // height, width, and runs of PIXELS in a row
  pads: vec4<i32>,      // height, width
  stride: u32,          // of rows
  dilation: u32,        // of rows
  jobs: u32,            // images * height * runs * channels in fours
}

//#include finish_quad

@compute @workgroup_size(64)
//#include invocation job=job size=64u jobs=jobs
  let fours = params.input.z;
  let run = job / fours;
  let four = job - run * fours;
  let line = run / params.output.z;
  let first = (run - line * params.output.z) * PIXELS;
  let image = line / params.output.x;
  let oh = line - image * params.output.x;
  let h0 = i32(oh * params.stride) - params.pads.x;
  let w0 = i32(first * STRIDE) - params.pads.y;

//#if BIAS
  let start = vec4<T>(load4_bias(four));
//#else
  let start = vec4<T>();
//#endif
  var sums: array<vec4<T>, PIXELS>;
  //#unroll
  for (var p = 0u; p < PIXELS; p++) {
    sums[p] = start;
  }
  for (var kh = 0u; kh < KH; kh++) {
    let h = h0 + i32(kh * params.dilation);
    if (u32(h) >= params.input.x) { continue; }
    let base = (image * params.input.x + u32(h)) * params.input.y;
    var row: array<vec4<T>, COLUMNS>;
    //#unroll
    for (var c = 0u; c < COLUMNS; c++) {
      let w = u32(w0 + i32(c));
      let inside = w < params.input.y;
      row[c] = select(vec4<T>(), vec4<T>(load4_x((base + select(0u, w, inside)) * fours + four)), inside);
    }
    //#unroll
    for (var kw = 0u; kw < KW; kw++) {
      let weight = vec4<T>(load4_w((kh * KW + kw) * fours + four));
      //#unroll
      for (var p = 0u; p < PIXELS; p++) {
        sums[p] += weight * row[p * STRIDE + kw * DILATION];
      }
    }
  }
//#if ROLLED
  let pixels = min(PIXELS, params.output.y - first);
  for (var p = 0u; p < pixels; p++) {
    put(line * params.output.y + first + p, four, sums[0]);
    //#unroll
    for (var i = 0u; i < PIXELS - 1u; i++) {
      sums[i] = sums[i + 1u];
    }
  }
//#else
  //#unroll
  for (var p = 0u; p < PIXELS; p++) {
    if (first + p < params.output.y) { put(line * params.output.y + first + p, four, sums[p]); }
  }
//#endif
}

fn put(row: u32, four: u32, sum: vec4<T>) {
  let v = finish(sum, row, four * 4u);
  store4_y(row * params.input.z + four, v[0], v[1], v[2], v[3]);
}
