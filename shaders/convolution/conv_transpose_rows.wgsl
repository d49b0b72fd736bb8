// y[n, m, o] = finish(sum over c, k, i with i * stride - pad + k * dilation = o of w[c, m, k] * x[n, c, i] + bias[m])
//
// Transposed convolution, four outputs of ROWS channels an invocation, no workgroup memory: for adapters that run on a
// processor. The four are `stride` apart, which meet the same filter positions.
//   finish  is the epilogue: fusion replaces it; it is there once, in loops whose count compilers do not know
//#tensors x, w, bias -> y
//#type ACC = y
const KD: u32 = 1u;
const KH: u32 = 1u;
const KW: u32 = 1u;
const ROWS: u32 = 8u;

const POSITIONS: u32 = KD * KH * KW;
const MANY: u32 = 0x10000000u;

struct Params {
  input: vec4<u32>,     // depth, height, width; channels of all groups
  output: vec4<u32>,    // depth, height, width; their product
  grid: vec4<u32>,      // outputs of a phase: depth, height, width; their product
  strides: vec4<i32>,
  dilations: vec4<i32>,
  pads: vec4<i32>,
  rows: u32,            // output channels of a group
  channels: u32,        // input channels of a group
  groups: u32,
  phases: u32,
  quads: u32,           // of four outputs, in a phase
  blocks: u32,          // of ROWS output channels, in a group
  jobs: u32,            // images * groups * blocks * phases * quads
}

fn finish(value: ACC, channel: u32, index: u32) -> ACC { return value; }

// The inputs that position k brings to outputs o along one axis; -1 where it brings none.
fn meets(o: vec4<u32>, k: u32, axis: u32) -> vec4<i32> {
  let t = vec4<i32>(o) + (params.pads[axis] - i32(k) * params.dilations[axis]);
  let i = t / params.strides[axis];
  let met = (t >= vec4<i32>()) & (i * params.strides[axis] == t) & (i < vec4<i32>(i32(params.input[axis])));
  return select(vec4<i32>(-1), i, met);
}

@compute @workgroup_size(64)
//#include invocation job=job size=64u jobs=jobs
  let run = job / params.quads;
  let first = (job - run * params.quads) * 4u;
  let map = run / params.phases;
  let phase = run - map * params.phases;
  let s = vec3<u32>(params.strides.xyz);
  let u = vec4<u32>(first, first + 1u, first + 2u, first + 3u);
  let uh = u / params.grid.z;
  let ud = uh / params.grid.y;
  let od = ud * s.x + phase / (s.z * s.y);
  let oh = (uh - ud * params.grid.y) * s.y + (phase / s.z) % s.y;
  let ow = (u - uh * params.grid.z) * s.z + phase % s.z;

  let image = map / (params.groups * params.blocks);
  let group = (map / params.blocks) % params.groups;
  let row = (map % params.blocks) * ROWS;
  let plane = params.input.x * params.input.y * params.input.z;
  let x_at = (image * params.input.w + group * params.channels) * plane;
  let w_group = group * params.channels * params.rows;

  var w_row: array<u32, ROWS>;
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
    w_row[r] = (w_group + min(row + r, params.rows - 1u)) * POSITIONS;
  }
  var sums: array<vec4<ACC>, ROWS>;
  for (var position = 0u; position < POSITIONS; position++) {
    let d = meets(od, position / (KH * KW), 0u);
    let h = meets(oh, (position / KW) % KH, 1u);
    let w = meets(ow, position % KW, 2u);
    let inside = (d >= vec4<i32>()) & (h >= vec4<i32>()) & (w >= vec4<i32>());
    if (!any(inside)) { continue; }
    let lines = vec4<u32>(d) * params.input.y + vec4<u32>(h);
    var at = select(vec4<u32>(), lines * params.input.z + vec4<u32>(w) + x_at, inside);
    let step = select(vec4<u32>(), vec4<u32>(plane), inside);
    var w_at = position;
    for (var c = 0u; c < MANY; c++) {
      if (c >= params.channels) { break; }
      let seen = vec4<ACC>(ACC(load_x(at.x)), ACC(load_x(at.y)), ACC(load_x(at.z)), ACC(load_x(at.w)));
      let v = select(vec4<ACC>(), seen, inside);
      //#unroll
      for (var r = 0u; r < ROWS; r++) {
        sums[r] += ACC(load_w(w_row[r] + w_at)) * v;
      }
      at += step;
      w_at += params.rows * POSITIONS;
    }
  }
  let within = (od < vec4<u32>(params.output.x)) & (oh < vec4<u32>(params.output.y)) & (ow < vec4<u32>(params.output.z));
  let own = (od * params.output.y + oh) * params.output.z + ow;
  let rows = min(ROWS, params.rows - row);
  for (var r = 0u; r < rows; r++) {
    let m = group * params.rows + row + r;
    var sum = sums[r];
//#if BIAS
    sum += ACC(load_bias(m));
//#endif
    let begin = (image * params.groups * params.rows + m) * params.output.w;
    for (var i = 0u; i < 4u; i++) {
      if (within[i]) { store_y(begin + own[i], finish(sum[i], m, begin + own[i])); }
    }
  }
}
