// How invocations of a workgroup combine moments: by `$reduced` of lanes, or in `$shares`, known to all.
//#if SUBGROUP
alias Share = vec3<f32>;
const LANES: u32 = WG;

fn combine_shares(a: Share, b: Share) -> Share { return combine_moments(a, b); }

//#include lanes
fn combined(own: vec3<f32>, lane: u32) -> vec3<f32> { return $reduced(own, lane); }
//#else
var<workgroup> $shares: array<vec3<f32>, WG>;

fn combined(own: vec3<f32>, lane: u32) -> vec3<f32> {
  $shares[lane] = own;
  workgroupBarrier();
  for (var step = WG / 2u; step > 0u; step >>= 1u) {
    if (lane < step) { $shares[lane] = combine_moments($shares[lane], $shares[lane + step]); }
    workgroupBarrier();
  }
  return $shares[0];
}
//#endif
