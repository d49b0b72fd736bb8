// y = (x - mean) / (sqrt(var + epsilon) + floor) [* scale + bias], over rows of `length` neighbouring elements.
//
// One workgroup a row, three readings: mean, then distances from it and their squares, then the result. The distances
// correct the mean's rounding, and no large numbers cancel.
// AFFINE: scale and bias are one an `inner` elements (a channel), or one a row's group.
//#tensors x, scale, bias -> y
//#variants WG=64 | AFFINE=1,WG=256 | AFFINE=1 x=float16 scale=float16 bias=float16 y=float16
const WG: u32 = 64u;

struct Params {
  rows: u32,
  length: u32,
  inner: u32,
  groups: u32,     // rows an image
  per_group: u32,  // 1: scale and bias are one a group
  epsilon: f32,
  floor: f32,
}

var<workgroup> part: array<vec2<f32>, WG>;

// The sum of all invocations' values, known to each of them.
fn total(value: vec2<f32>, lane: u32) -> vec2<f32> {
  workgroupBarrier();
  part[lane] = value;
  workgroupBarrier();
  for (var step = WG / 2u; step > 0u; step >>= 1u) {
    if (lane < step) { part[lane] += part[lane + step]; }
    workgroupBarrier();
  }
  return part[0];
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
  let count = f32(params.length);

  var sum = vec2<f32>(0.0);
  for (var k = lane; k < params.length; k += WG) { sum.x += load_x(base + k); }
  let rough = total(sum, lane).x / count;
  sum = vec2<f32>(0.0);
  for (var k = lane; k < params.length; k += WG) {
    let d = load_x(base + k) - rough;
    sum += vec2<f32>(d, d * d);
  }
  let moments = total(sum, lane) / count;
  let deviation = sqrt(max(moments.y - moments.x * moments.x, 0.0) + params.epsilon) + params.floor;
  for (var k = lane; k < params.length; k += WG) {
    let v = (load_x(base + k) - rough - moments.x) / deviation;
//#if AFFINE
    let group = row % params.groups;
    let channel = select(group * (params.length / params.inner) + k / params.inner, group, params.per_group == 1u);
    store_y(base + k, v * load_scale(channel) + load_bias(channel));
//#else
    store_y(base + k, v);
//#endif
  }
}
