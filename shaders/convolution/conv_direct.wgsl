// y[n, m, p] = finish(sum over c, k of w[m, c, k] * x[n, c, p * stride - pad + k * dilation] + bias[m])
//
// One invocation makes four neighbouring pixels of one output channel (FOUR: of four channels; EIGHT with it: of eight),
// walking the channels of its group. For groups of few output channels, where the tiles of conv_implicit_gemm would stay
// empty, and for devices that pay more for workgroup memory than it saves.
//   finish  is the epilogue: fusion replaces it (activation, residual)
//#tensors x, w, bias, x_zero_point, w_zero_point -> y
//#type ACC = y
//#include kernel_sizes

const POSITIONS: u32 = KD * KH * KW;
const MANY: u32 = 0x10000000u;

struct Params {
//#include convolution_fields
  rows: u32,            // output channels of a group
  channels: u32,        // input channels of a group
  groups: u32,
  quads: u32,           // of four pixels, in a channel
  blocks: u32,          // of one output channel, of four or eight, in a group
  jobs: u32,            // images * groups * blocks * quads
  zero_stride: u32,     // 1: w_zero_point has one element an output channel
}

fn finish(value: ACC, channel: u32, index: u32) -> ACC { return value; }

// Where a quad of pixels looks: x's first channel at their first position, and its coordinates.
struct Quad {
  x_at: u32,
  d: vec4<i32>,
  h: vec4<i32>,
  w: vec4<i32>,
}

fn quad_of(first: u32, x_at: u32) -> Quad {
  var quad: Quad;
  let p = vec4<u32>(first, first + 1u, first + 2u, first + 3u);
  let oh = p / params.output.z;
  quad.x_at = x_at;
//#include windows_of_quad
  return quad;
}

fn emit(sum: vec4<ACC>, image: u32, m: u32, first: u32) {
  let at = (image * params.groups * params.rows + m) * params.output.w + first;
  var v = sum;
//#if BIAS
  v += ACC(load_bias(m));
//#endif
//#include store_four v=v m=m first=first width=params.output.w
}

fn w_zero(m: u32) -> ACC {
//#if ZERO_W
  return ACC(load_w_zero_point(m * params.zero_stride));
//#else
  return ACC(0);
//#endif
}

fn x_zero() -> ACC {
//#if ZERO_X
  return ACC(load_x_zero_point(0u));
//#else
  return ACC(0);
//#endif
}

//#if FOUR
fn four_rows(first: u32) -> vec4<u32> {
  return min(vec4<u32>(first, first + 1u, first + 2u, first + 3u), vec4<u32>(params.rows - 1u));
}

fn four_w_zeros(m: vec4<u32>) -> vec4<ACC> {
  return vec4<ACC>(w_zero(m.x), w_zero(m.y), w_zero(m.z), w_zero(m.w));
}

fn four_w(at: vec4<u32>) -> vec4<ACC> {
  return vec4<ACC>(ACC(load_w(at.x)), ACC(load_w(at.y)), ACC(load_w(at.z)), ACC(load_w(at.w)));
}
//#endif

@compute @workgroup_size(64)
//#include invocation job=job size=64u jobs=jobs
  let run = job / params.quads;
  let first = (job - run * params.quads) * 4u;
  let image = run / (params.groups * params.blocks);
  let group = (run / params.blocks) % params.groups;
  let plane = params.input.x * params.input.y * params.input.z;
  let quad = quad_of(first, (image * params.input.w + group * params.channels) * plane);
  let depth = params.channels * POSITIONS;
  let zero = x_zero();
//#if FOUR
//#if EIGHT
  let row = (run % params.blocks) * 8u;
  let m_high = group * params.rows + four_rows(row + 4u);
  let w_zeros_high = four_w_zeros(m_high);
  var sum4 = vec4<ACC>(0);
  var sum5 = vec4<ACC>(0);
  var sum6 = vec4<ACC>(0);
  var sum7 = vec4<ACC>(0);
//#else
  let row = (run % params.blocks) * 4u;
//#endif
  let m = group * params.rows + four_rows(row);
  let w_zeros = four_w_zeros(m);
  var sum1 = vec4<ACC>(0);
  var sum2 = vec4<ACC>(0);
  var sum3 = vec4<ACC>(0);
//#else
  let m = group * params.rows + run % params.blocks;
  let w_zeros = w_zero(m);
//#endif
  var sum0 = vec4<ACC>(0);
  for (var position = 0u; position < POSITIONS; position++) {
    let h = quad.h + i32((position / KW) % KH * params.dilations.y);
    let w = quad.w + i32(position % KW * params.dilations.z);
    var inside = (vec4<u32>(h) < vec4<u32>(params.input.y)) & (vec4<u32>(w) < vec4<u32>(params.input.z));
    var line = h;
//#if VOLUME
    let d = quad.d + i32(position / (KH * KW) * params.dilations.x);
    inside &= vec4<u32>(d) < vec4<u32>(params.input.x);
    line += d * i32(params.input.y);
//#endif
    var at = select(vec4<u32>(0u), vec4<u32>(line) * params.input.z + vec4<u32>(w) + quad.x_at, inside);
    let step = select(vec4<u32>(0u), vec4<u32>(plane), inside);
    var w_at = m * depth + position;
//#if EIGHT
    var w_at_high = m_high * depth + position;
//#endif
    for (var c = 0u; c < MANY; c++) {
      if (c >= params.channels) { break; }
      let seen = vec4<ACC>(ACC(load_x(at.x)), ACC(load_x(at.y)), ACC(load_x(at.z)), ACC(load_x(at.w))) - zero;
      let v = select(vec4<ACC>(0), seen, inside);
//#if FOUR
      let weight = four_w(w_at) - w_zeros;
      sum0 += weight.x * v;
      sum1 += weight.y * v;
      sum2 += weight.z * v;
      sum3 += weight.w * v;
//#if EIGHT
      let weight_high = four_w(w_at_high) - w_zeros_high;
      sum4 += weight_high.x * v;
      sum5 += weight_high.y * v;
      sum6 += weight_high.z * v;
      sum7 += weight_high.w * v;
      w_at_high += POSITIONS;
//#endif
//#else
      sum0 += (ACC(load_w(w_at)) - w_zeros) * v;
//#endif
      at += step;
      w_at += POSITIONS;
    }
  }
//#if FOUR
  // `finish` is there once, in a loop whose count compilers do not know.
//#if EIGHT
  let rows = min(8u, params.rows - row);
//#else
  let rows = min(4u, params.rows - row);
//#endif
  for (var r = 0u; r < rows; r++) {
    emit(sum0, image, group * params.rows + row + r, first);
    sum0 = sum1;
    sum1 = sum2;
    sum2 = sum3;
//#if EIGHT
    sum3 = sum4;
    sum4 = sum5;
    sum5 = sum6;
    sum6 = sum7;
//#endif
  }
//#else
  emit(sum0, image, m, first);
//#endif
}
