// y = saturate(round(x / scale) + zero), scale = (high - low) / 255, or 1 where x is all zeros, zero = round(-low / scale): x as
// uint8 over its own range [low, high], which holds 0; NaN is left out of it, and becomes 0.
//
// WHOLE: one workgroup looks for the range itself. Else it is in `pairs`, one pair of bounds for each workgroup of
// quantization_range.wgsl, which every workgroup merges. Source: ONNX DynamicQuantizeLinear.
//#tensors x, pairs -> y, scale, zero
const WG: u32 = 64u;

struct Params {
  size: u32,
  step: u32,
  count: u32,
}

var<workgroup> lows: array<f32, WG>;
var<workgroup> highs: array<f32, WG>;

fn level(v: f32, step: f32, offset: f32) -> u32 {
  return u32(quantize(near_quotient(v, step), offset, 0.0, 255.0));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  var low = 0.0;
  var high = 0.0;
//#if WHOLE
//#include range_of_x first=lane step=WG
//#else
  for (var i = lane; i < params.count; i += WG) {
    low = min(low, load_pairs(2u * i));
    high = max(high, load_pairs(2u * i + 1u));
  }
//#endif
//#include range_of_workgroup
  var step = divide_rounded(highs[0] - lows[0], 255.0);
  if (highs[0] == lows[0]) { step = 1.0; }
  let offset = quantize(divide_rounded(-lows[0], step), 0.0, 0.0, 255.0);
  for (var g = wid.x * WG + lane; g * 4u < params.size; g += params.step) {
    let v = load4_x(g);
    store4_y(g, level(v[0], step, offset), level(v[1], step, offset), level(v[2], step, offset), level(v[3], step, offset));
  }
  if (wid.x == 0u && lane == 0u) {
//#if SCALE
    store_scale(0u, step);
//#endif
//#if ZERO
    store4_zero(0u, u32(offset), 0u, 0u, 0u);
//#endif
  }
}
