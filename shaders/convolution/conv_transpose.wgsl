// y[n, m, o] = finish(sum over c, k, i with i * stride - pad + k * dilation = o of w[c, m, k] * x[n, c, i] + bias[m])
//
// Transposed convolution, one output an invocation. Neighbouring invocations make outputs `stride` apart, which meet
// the same positions: no invocation of a subgroup waits for another's. For groups of few output channels on GPUs;
// conv_implicit_gemm does the others, conv_transpose_rows all on software adapters.
//   finish  is the epilogue: fusion replaces it (activation, residual)
//#tensors x, w, bias -> y
//#type ACC = y
//#include kernel_sizes

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
  jobs: u32,            // images * output channels * phases * outputs of a phase
}

fn finish(value: ACC, channel: u32, index: u32) -> ACC { return value; }

// The input that position k brings to output o along one axis; -1 where none does.
fn meets(o: i32, k: u32, axis: u32) -> i32 {
  let t = o + params.pads[axis] - i32(k) * params.dilations[axis];
  let i = t / params.strides[axis];
  return select(-1, i, t >= 0 && i * params.strides[axis] == t && i < i32(params.input[axis]));
}

@compute @workgroup_size(64)
//#include invocation job=job size=64u jobs=jobs
  let run = job / params.grid.w;
  let u = job - run * params.grid.w;
  let map = run / params.phases;
  let phase = run - map * params.phases;
  let s = vec3<u32>(params.strides.xyz);
  let uh = u / params.grid.z;
  let ud = uh / params.grid.y;
  let at = vec3<u32>(ud, uh - ud * params.grid.y, u - uh * params.grid.z);
  let o = at * s + vec3<u32>(phase / (s.z * s.y), (phase / s.z) % s.y, phase % s.z);
  if (any(o >= params.output.xyz)) { return; }

  let total = params.groups * params.rows;
  let image = map / total;
  let m = map - image * total;
  let group = m / params.rows;
  let plane = params.input.x * params.input.y * params.input.z;
  let x_at = (image * params.input.w + group * params.channels) * plane;
  let w_at = group * params.channels * params.rows + (m - group * params.rows);
  let positions = KD * KH * KW;

  var sum = ACC(0);
  for (var kd = 0u; kd < KD; kd++) {
    let d = meets(i32(o.x), kd, 0u);
    if (d < 0) { continue; }
    for (var kh = 0u; kh < KH; kh++) {
      let h = meets(i32(o.y), kh, 1u);
      if (h < 0) { continue; }
      for (var kw = 0u; kw < KW; kw++) {
        let w = meets(i32(o.z), kw, 2u);
        if (w < 0) { continue; }
        let source = x_at + (u32(d) * params.input.y + u32(h)) * params.input.z + u32(w);
        let position = w_at * positions + (kd * KH + kh) * KW + kw;
        for (var c = 0u; c < MANY; c++) {
          if (c >= params.channels) { break; }
          sum += ACC(load_x(source + c * plane)) * ACC(load_w(position + c * params.rows * positions));
        }
      }
    }
  }
//#if BIAS
  sum += ACC(load_bias(m));
//#endif
  let index = map * params.output.w + (o.x * params.output.y + o.y) * params.output.z + o.z;
  store_y(index, finish(sum, m, index));
}
