// How invocations of a workgroup combine moments: by `lanes`, or in `$shares`.
//#if SUBGROUP
alias Share = vec3<f32>;
const LANES: u32 = WG;

fn combine_shares(a: Share, b: Share) -> Share { return combine_moments(a, b); }

//#include lanes
//#else
var<workgroup> $shares: array<vec3<f32>, WG>;
//#endif
