// y = (x - mean) * inv * scale + bias over rows of `length` elements; inv = 1 / sqrt(mean((x - mean)^2) + epsilon).
// RMS: the mean is not taken off: y = x * inv * scale, inv = 1 / sqrt(mean(x^2) + epsilon).
//
// Two passes over a row that is in cache by then: the mean first, so the variance loses no digits. One workgroup of WG
// invocations a row; ALONE: one invocation a row. VEC: rows are whole vec4s. SCALE, BIAS: tensors of `length` elements
// that every row shares. MEAN, INV: the statistics are outputs too.
//#tensors x, scale, bias -> y, mean, inv
//#variants SCALE=1,BIAS=1,MEAN=1,INV=1 | RMS=1,SCALE=1 | ALONE=1,SCALE=1,BIAS=1
//#variants VEC=1,WG=256,SCALE=1,BIAS=1 x=float16 scale=float16 bias=float16 y=float16 | ALONE=1,VEC=1,RMS=1,SCALE=1
const WG: u32 = 64u;

struct Params {
  rows: u32,
  length: u32,
  epsilon: f32,
}

//#if !ALONE
var<workgroup> parts: array<f32, WG>;
//#endif

// The sum of an invocation's share of (x - center) or of its square.
fn sum_of(base: u32, first: u32, stride: u32, center: f32, square: bool) -> f32 {
  var total = 0.0;
//#if VEC
  for (var k = first * 4u; k < params.length; k += stride * 4u) {
    let d = load4_x((base + k) >> 2u) - vec4<f32>(center);
    total += select(dot(d, vec4<f32>(1.0)), dot(d, d), square);
  }
//#else
  for (var k = first; k < params.length; k += stride) {
    let d = load_x(base + k) - center;
    total += select(d, d * d, square);
  }
//#endif
  return total;
}

fn normal(v: f32, k: u32, center: f32, factor: f32) -> f32 {
  var r = (v - center) * factor;
//#if SCALE
  r *= load_scale(k);
//#endif
//#if BIAS
  r += load_bias(k);
//#endif
  return r;
}

fn write_row(row: u32, first: u32, stride: u32, center: f32, factor: f32) {
  let base = row * params.length;
//#if VEC
  for (var k = first * 4u; k < params.length; k += stride * 4u) {
    let g = (base + k) >> 2u;
    var v = (load4_x(g) - vec4<f32>(center)) * factor;
//#if SCALE
    v *= load4_scale(k >> 2u);
//#endif
//#if BIAS
    v += load4_bias(k >> 2u);
//#endif
    store4_y(g, v[0], v[1], v[2], v[3]);
  }
//#else
  for (var k = first; k < params.length; k += stride) {
    store_y(base + k, normal(load_x(base + k), k, center, factor));
  }
//#endif
  if (first == 0u) {
//#if MEAN
    store_mean(row, center);
//#endif
//#if INV
    store_inv(row, factor);
//#endif
  }
}

//#if ALONE
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let row = global_index(gid, nwg, WG);
  if (row >= params.rows) { return; }
  let base = row * params.length;
  let n = f32(params.length);
//#if RMS
  let center = 0.0;
//#else
  let center = sum_of(base, 0u, 1u, 0.0, false) / n;
//#endif
  let spread = sum_of(base, 0u, 1u, center, true) / n;
  write_row(row, 0u, 1u, center, 1.0 / sqrt(spread + params.epsilon));
}
//#else
// The sum over all invocations, for each of them.
fn total(lane: u32, share: f32) -> f32 {
  parts[lane] = share;
  workgroupBarrier();
  for (var step = WG / 2u; step > 0u; step >>= 1u) {
    if (lane < step) { parts[lane] += parts[lane + step]; }
    workgroupBarrier();
  }
  let sum = parts[0];
  workgroupBarrier();
  return sum;
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = workgroup_index(wid, nwg);
  if (row >= params.rows) { return; }
  let base = row * params.length;
  let n = f32(params.length);
//#if RMS
  let center = 0.0;
//#else
  let center = total(lane, sum_of(base, lane, WG, 0.0, false)) / n;
//#endif
  let spread = total(lane, sum_of(base, lane, WG, center, true)) / n;
  write_row(row, lane, WG, center, 1.0 / sqrt(spread + params.epsilon));
}
//#endif
