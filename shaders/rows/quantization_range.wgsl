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
//#include range_of_x first="wid.x * WG + lane" step=params.step
//#include range_of_workgroup
  if (lane == 0u) {
    store_y(2u * wid.x, lows[0]);
    store_y(2u * wid.x + 1u, highs[0]);
  }
}
