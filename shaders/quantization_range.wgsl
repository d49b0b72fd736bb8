// The least and the greatest of x and 0, NaN left out: one pair for each workgroup, which strides over x.
//#tensors x -> y
const WG: u32 = 64u;

struct Params {
  size: u32,
  step: u32,
}

var<workgroup> lows: array<f32, WG>;
var<workgroup> highs: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  var low = 0.0;
  var high = 0.0;
//#if FOURS
  // x has whole fours.
  var least = vec4<f32>();
  var most = vec4<f32>();
  for (var g = wid.x * WG + lane; g * 4u < params.size; g += params.step) {
    let v = load4_x(g);
    let number = (bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu)) <= vec4<u32>(0x7f800000u);
    least = min(least, select(vec4<f32>(), v, number));
    most = max(most, select(vec4<f32>(), v, number));
  }
  low = min(min(least.x, least.y), min(least.z, least.w));
  high = max(max(most.x, most.y), max(most.z, most.w));
//#else
  for (var g = wid.x * WG + lane; g * 4u < params.size; g += params.step) {
    let v = load4_x(g);
    //#unroll
    for (var c = 0u; c < 4u; c++) {
      if (g * 4u + c < params.size && !is_nan(v[c])) {
        low = min(low, v[c]);
        high = max(high, v[c]);
      }
    }
  }
//#endif
  lows[lane] = low;
  highs[lane] = high;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half >>= 1u) {
    if (lane < half) {
      lows[lane] = min(lows[lane], lows[lane + half]);
      highs[lane] = max(highs[lane], highs[lane + half]);
    }
    workgroupBarrier();
  }
  if (lane == 0u) {
    store_y(2u * wid.x, lows[0]);
    store_y(2u * wid.x + 1u, highs[0]);
  }
}
