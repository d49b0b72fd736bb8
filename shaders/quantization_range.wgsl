// The least and the greatest of x and 0, NaN left out: one pair for each workgroup, which strides over x.
// MERGE: x holds such pairs, and the one workgroup turns them into scale and zero point of [0, 255]:
// scale = (high - low) / 255, or 1 where x is all zeros; zero = round(-low / scale). Source: ONNX DynamicQuantizeLinear.
//#tensors x -> y
//#variants MERGE=0 | MERGE=1 | MERGE=0 x=float16
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
  for (var i = wid.x * WG + lane; i < params.size; i += params.step) {
    let v = load_x(i);
    if (!is_nan(v)) {
      low = min(low, v);
      high = max(high, v);
    }
  }
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
//#if MERGE
    var scale = divide_rounded(highs[0] - lows[0], 255.0);
    if (highs[0] == lows[0]) { scale = 1.0; }
    store_y(0u, scale);
    store_y(1u, quantize(divide_rounded(-lows[0], scale), 0.0, 0.0, 255.0));
//#else
    store_y(2u * wid.x, lows[0]);
    store_y(2u * wid.x + 1u, highs[0]);
//#endif
  }
}
