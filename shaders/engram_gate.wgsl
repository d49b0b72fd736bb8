// y = gate * value, gate = sigmoid(sign(d) * sqrt(max(|d|, 1e-6))), d = sum of k * q / sqrt(length), over rows of `length`
// elements. k and q are rows of key and query, each over sqrt(mean of its squares + epsilon) and by its scale.
//
// `branches` rows in a row share one of value and have scales of their own, which all rows take turns with. LANES
// invocations share a row, WG / LANES rows a workgroup. VEC: rows are whole vec4s. NORMED: y over its own root, by a
// scale, is an output too; as gate is one number of a row, mean(y^2) is gate^2 * mean(value^2).
//#tensors key, query, value, key_scale, query_scale, conv_scale -> y, normed
//#variants SHARED=1,NORMED=1 | SHARED=1,VEC=1,NORMED=1,SUBGROUP=32 | LANES=1 | LANES=1,VEC=1,NORMED=1 | SHARED=1
//#variants SHARED=1,VEC=1,WG=256,LANES=256,SUBGROUP=4,ACROSS=1
const WG: u32 = 64u;
const LANES: u32 = 64u;

struct Params {
  rows: u32,
  length: u32,
  branches: u32,
  epsilon: f32,
}

// Sums of a row's squares of key, of query, of their products by both scales, of squares of value.
alias Share = vec4<f32>;

//#if SUBGROUP
fn join_shares(a: Share, b: Share) -> Share { return a + b; }

//#include lanes
//#else
//#if SHARED
var<workgroup> parts: array<Share, WG>;
//#endif
//#endif

// The share of one invocation, from element `first` on in steps of `stride`.
fn fold(row: u32, first: u32, stride: u32) -> Share {
  let base = row * params.length;
  let turn = (row % params.branches) * params.length;
  let shared_base = (row / params.branches) * params.length;
  var sums = Share();
//#if VEC
  for (var j = first * 4u; j < params.length; j += stride * 4u) {
    let k = load4_key((base + j) >> 2u);
    let q = load4_query((base + j) >> 2u);
    let scales = load4_key_scale((turn + j) >> 2u) * load4_query_scale((turn + j) >> 2u);
    let v = load4_value((shared_base + j) >> 2u);
    sums += Share(dot(k, k), dot(q, q), dot(k * q, scales), dot(v, v));
  }
//#else
  for (var j = first; j < params.length; j += stride) {
    let k = load_key(base + j);
    let q = load_query(base + j);
    let v = load_value(shared_base + j);
    sums += Share(k * k, q * q, k * q * (load_key_scale(turn + j) * load_query_scale(turn + j)), v * v);
  }
//#endif
  return sums;
}

fn write_row(row: u32, first: u32, stride: u32, sums: Share) {
  let base = row * params.length;
  let shared_base = (row / params.branches) * params.length;
  let means = sums / f32(params.length) + vec4<f32>(params.epsilon);
  let d = sums.z / (sqrt(means.x) * sqrt(means.y) * sqrt(f32(params.length)));
  let gate = sigmoid(sign_of(d) * sqrt(nan_max(abs(d), 1e-6)));
//#if NORMED
  let turn = (row % params.branches) * params.length;
  let factor = gate / sqrt(gate * gate * (sums.w / f32(params.length)) + params.epsilon);
//#endif
//#if VEC
  for (var j = first * 4u; j < params.length; j += stride * 4u) {
    let v = load4_value((shared_base + j) >> 2u);
    let y = v * gate;
    store4_y((base + j) >> 2u, y[0], y[1], y[2], y[3]);
//#if NORMED
    let n = v * factor * load4_conv_scale((turn + j) >> 2u);
    store4_normed((base + j) >> 2u, n[0], n[1], n[2], n[3]);
//#endif
  }
//#else
  for (var j = first; j < params.length; j += stride) {
    let v = load_value(shared_base + j);
    store_y(base + j, v * gate);
//#if NORMED
    store_normed(base + j, v * factor * load_conv_scale(turn + j));
//#endif
  }
//#endif
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) place: u32,
) {
  let first_row = workgroup_index(wid, nwg) * (WG / LANES);
  if (first_row >= params.rows) { return; }
  let row = first_row + place / LANES;
  let lane = place % LANES;
//#if SUBGROUP
  let total = joined_for_all(fold(min(row, params.rows - 1u), lane, LANES), place);
//#else
//#if SHARED
  parts[place] = fold(min(row, params.rows - 1u), lane, LANES);
  workgroupBarrier();
  for (var level = 1u; level <= firstTrailingBit(LANES); level++) {
    let step = LANES >> level;
    if (lane < step) { parts[place] += parts[place + step]; }
    workgroupBarrier();
  }
  let total = parts[place - lane];
//#else
  if (row >= params.rows) { return; }
  let total = fold(row, lane, LANES);
//#endif
//#endif
  if (row < params.rows) { write_row(row, lane, LANES, total); }
}
