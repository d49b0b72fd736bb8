// y = finish((x - mean) / (sqrt(var + epsilon) + floor) [* scale + bias]), over rows of `length` neighbouring elements.
//
// One workgroup a row, three readings: mean, then distances from it and their squares, then the result. The distances
// correct the mean's rounding, and no large numbers cancel.
// AFFINE: scale and bias are one an `inner` elements (a channel), or one a row's group. VEC: rows, and channels where
// they matter, are whole vec4s.
//#tensors x, scale, bias -> y
const WG: u32 = 64u;

alias ACC = f32;

struct Params {
  rows: u32,
  length: u32,
  inner: u32,
  groups: u32,     // rows an image
  per_group: u32,  // 1: scale and bias are one a group
  epsilon: f32,
  floor: f32,
}

fn finish(value: ACC, channel: u32, index: u32) -> ACC { return value; }

//#if SUBGROUP
alias Share = vec2<f32>;
const LANES: u32 = WG;

fn combine_shares(a: Share, b: Share) -> Share { return a + b; }

//#include lanes
//#else
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
//#endif

@compute @workgroup_size(WG)
//#include numbered_workgroup name=main place=lane number=row count=params.rows
  let base = row * params.length;
  let count = f32(params.length);

  var sum = vec2<f32>(0.0);
//#if VEC
  for (var k = lane * 4u; k < params.length; k += WG * 4u) { sum.x += dot(load4_x((base + k) >> 2u), vec4<f32>(1.0)); }
//#else
  for (var k = lane; k < params.length; k += WG) { sum.x += load_x(base + k); }
//#endif
//#if SUBGROUP
  let rough = reduced_for_all(sum, lane).x / count;
//#else
  let rough = total(sum, lane).x / count;
//#endif
  sum = vec2<f32>(0.0);
//#if VEC
  for (var k = lane * 4u; k < params.length; k += WG * 4u) {
    let d = load4_x((base + k) >> 2u) - vec4<f32>(rough);
    sum += vec2<f32>(dot(d, vec4<f32>(1.0)), dot(d, d));
  }
//#else
  for (var k = lane; k < params.length; k += WG) {
    let d = load_x(base + k) - rough;
    sum += vec2<f32>(d, d * d);
  }
//#endif
//#if SUBGROUP
//#if ACROSS
  workgroupBarrier();
//#endif
  let moments = reduced_for_all(sum, lane) / count;
//#else
  let moments = total(sum, lane) / count;
//#endif
  let deviation = sqrt(max(moments.y - moments.x * moments.x, 0.0) + params.epsilon) + params.floor;
  let group = row % params.groups;
//#if VEC
  for (var k = lane * 4u; k < params.length; k += WG * 4u) {
    let channel = group * (params.length / params.inner) + k / params.inner;
    var v = (load4_x((base + k) >> 2u) - vec4<f32>(rough) - vec4<f32>(moments.x)) / deviation;
//#include affine_stored
  }
//#else
  for (var k = lane; k < params.length; k += WG) {
    let channel = group * (params.length / params.inner) + k / params.inner;
    var v = (load_x(base + k) - rough - moments.x) / deviation;
//#if AFFINE
    let which = select(channel, group, params.per_group == 1u);
    v = v * load_scale(which) + load_bias(which);
//#endif
    store_y(base + k, finish(v, channel, base + k));
  }
//#endif
}
