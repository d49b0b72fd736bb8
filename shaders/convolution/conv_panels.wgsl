// y[n, m, p] = finish(sum over c, k of w[m, c, k] * x[n, c, p * stride - pad + k * dilation] + bias[m])
//
// One invocation makes PIXELS neighbours in a row of eight output channels. Weights are in panels of eight output channels
// of a group: eight for each step, in the order of the loops below. ALONG: the innermost steps are along the kernel's
// width; else they are the channels. For targets whose invocations run one after the other.
//   finish  is the epilogue: fusion replaces it (activation, residual)
//#tensors x, w, bias -> y
//#include kernel_sizes

const PIXELS: u32 = 4u;
const STRIDE: u32 = 1u;

struct Params {
//#include convolution_fields
  rows: u32,            // output channels of a group
  channels: u32,        // input channels of a group
  groups: u32,
  quads: u32,           // of PIXELS, in a row
  blocks: u32,          // of eight output channels, in a group
  jobs: u32,            // images * groups * blocks * output.x * output.y * quads
}

fn finish(value: f32, channel: u32, index: u32) -> f32 { return value; }

// x[i], or 0 where column `at` is not in the row.
fn inside(i: u32, at: i32) -> f32 {
  let known = u32(at) < params.input.z;
  return select(0.0, load_x(select(0u, i, known)), known);
}

@compute @workgroup_size(64)
//#include invocation job=job size=64u jobs=jobs
  let first = job % params.quads * PIXELS;
  let line = job / params.quads % (params.output.x * params.output.y);
  let panel = job / (params.quads * params.output.x * params.output.y) % (params.blocks * params.groups);
  let image = job / (params.quads * params.output.x * params.output.y * params.blocks * params.groups);
  let group = panel / params.blocks;
  let plane = params.input.x * params.input.y * params.input.z;
  let x_at = (image * params.input.w + group * params.channels) * plane;
  let d0 = i32(line / params.output.y) * params.strides.x - params.pads.x;
  let h0 = i32(line % params.output.y) * params.strides.y - params.pads.y;
  let w0 = i32(first) * params.strides.z - params.pads.z;
  let across = i32(params.dilations.z);
  let reach = i32((PIXELS - 1u) * STRIDE);
  var w_at = panel * (2u * KD * KH * KW) * params.channels;
  var sums: array<vec4<f32>, 2u * PIXELS>;
  for (var kd = 0u; kd < KD; kd++) {
    let d = d0 + i32(kd * params.dilations.x);
    for (var kh = 0u; kh < KH; kh++) {
      let h = h0 + i32(kh * params.dilations.y);
      if (u32(d) >= params.input.x || u32(h) >= params.input.y) {
        w_at += 2u * KW * params.channels;
        continue;
      }
      let row = x_at + (u32(d) * params.input.y + u32(h)) * params.input.z;
//#if ALONG
      let fits = w0 >= 0 && u32(w0 + i32(KW - 1u) * across + reach) < params.input.z;
      for (var c = 0u; c < params.channels; c++) {
        var at = row + c * plane + u32(w0);
        if (fits) {
          for (var kw = 0u; kw < KW; kw++) {
            let low = load4_w(w_at);
            let high = load4_w(w_at + 1u);
            //#unroll
            for (var p = 0u; p < PIXELS; p++) {
              let v = vec4<f32>(load_x(at + p * STRIDE));
              sums[2u * p] += v * low;
              sums[2u * p + 1u] += v * high;
            }
            at += params.dilations.z;
            w_at += 2u;
          }
        } else {
          for (var kw = 0u; kw < KW; kw++) {
            let low = load4_w(w_at);
            let high = load4_w(w_at + 1u);
            let w = w0 + i32(kw) * across;
            //#unroll
            for (var p = 0u; p < PIXELS; p++) {
              let v = vec4<f32>(inside(at + p * STRIDE, w + i32(p * STRIDE)));
              sums[2u * p] += v * low;
              sums[2u * p + 1u] += v * high;
            }
            at += params.dilations.z;
            w_at += 2u;
          }
        }
      }
//#else
      for (var kw = 0u; kw < KW; kw++) {
        let w = w0 + i32(kw) * across;
        var at = row + u32(w);
        if (w >= 0 && u32(w + reach) < params.input.z) {
          for (var c = 0u; c < params.channels; c++) {
            let low = load4_w(w_at);
            let high = load4_w(w_at + 1u);
            //#unroll
            for (var p = 0u; p < PIXELS; p++) {
              let v = vec4<f32>(load_x(at + p * STRIDE));
              sums[2u * p] += v * low;
              sums[2u * p + 1u] += v * high;
            }
            at += plane;
            w_at += 2u;
          }
        } else {
          for (var c = 0u; c < params.channels; c++) {
            let low = load4_w(w_at);
            let high = load4_w(w_at + 1u);
            //#unroll
            for (var p = 0u; p < PIXELS; p++) {
              let v = vec4<f32>(inside(at + p * STRIDE, w + i32(p * STRIDE)));
              sums[2u * p] += v * low;
              sums[2u * p + 1u] += v * high;
            }
            at += plane;
            w_at += 2u;
          }
        }
      }
//#endif
    }
  }
  var made: array<vec4<f32>, 2u * PIXELS>;
  //#unroll
  for (var i = 0u; i < 2u * PIXELS; i++) {
    made[i] = sums[i];
  }
  let row = panel % params.blocks * 8u;
  let pixels = min(PIXELS, params.output.z - first);
  for (var r = 0u; r < min(8u, params.rows - row); r++) {
    let m = group * params.rows + row + r;
    let y_at = (image * params.groups * params.rows + m) * params.output.w + line * params.output.z + first;
    for (var p = 0u; p < pixels; p++) {
      let i = 8u * p + r;
      var v = made[i >> 2u][i & 3u];
//#if BIAS
      v += load_bias(m);
//#endif
      store_y(y_at + p, finish(v, m, y_at + p));
    }
  }
}
