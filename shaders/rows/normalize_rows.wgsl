// y = (s - mean) * inv * scale + bias over rows of `length` elements; inv = 1 / sqrt(mean((s - mean)^2) + epsilon).
// RMS: the mean is not taken off: y = s * inv * scale, inv = 1 / sqrt(mean(s^2) + epsilon).
// s = x + skip + offset. SKIP: a tensor of `period` elements that repeats. OFFSET: a tensor of `length` elements.
//
// LANES invocations share a row, WG / LANES rows a workgroup. Each takes the mean of its share, then the squares of its
// distances from that, and the partial results are combined by Chan, Golub and LeVeque's formula (1979): no digits are lost where
// the mean is large. VEC: rows are whole vec4s. SCALE, BIAS: tensors of `length` elements that every row shares. JOINED:
// s is an output too; MEAN, INV: so are the statistics.
//#if SCALES
// SCALES: `scale` is of `scales` rows that take turns.
//#endif
//#if ORDER
// ORDER: the rows of x are put together of pieces of `piece` elements, piece `order[i]` in the place of piece i.
//#endif
//#if PLACES
// PLACES: row r of y is written as row `places[r]`.
//#endif
//#if FALLBACK
// FALLBACK: `kernels/ir/fallback.py`.
//#endif
//#tensors x, skip, offset, scale, bias, order, places -> y, joined, mean, inv
const WG: u32 = 64u;
const LANES: u32 = 64u;

struct Params {
  rows: u32,
  length: u32,
  period: u32,
  epsilon: f32,
//#if ORDER
  piece: u32,
//#endif
//#if SCALES
  scales: u32,
//#endif
}

//#if ORDER
// Where element `i` of x in the order of its pieces is.
fn at_x(i: u32) -> u32 {
  let number = i / params.piece;
  return load_order(number) * params.piece + (i - number * params.piece);
}

//#endif
//#if VEC
// Elements `k` to `k + 3` of the row that begins at `base`.
fn four(base: u32, k: u32) -> vec4<f32> {
//#if ORDER
  var v = load4_x(at_x(base + k) >> 2u);
//#else
  var v = load4_x((base + k) >> 2u);
//#endif
//#if SKIP
  v += load4_skip(((base + k) % params.period) >> 2u);
//#endif
//#if OFFSET
  v += load4_offset(k >> 2u);
//#endif
  return v;
}
//#else
// Element `k` of the row that begins at `base`.
fn one(base: u32, k: u32) -> f32 {
//#if ORDER
  var v = load_x(at_x(base + k));
//#else
  var v = load_x(base + k);
//#endif
//#if SKIP
  v += load_skip((base + k) % params.period);
//#endif
//#if OFFSET
  v += load_offset(k);
//#endif
  return v;
}
//#endif

// The share of one invocation, from element `first` on in steps of `stride`.
fn fold(base: u32, first: u32, stride: u32) -> vec3<f32> {
  var count = 0.0;
  var sum = 0.0;
  var center = 0.0;
  var squares = 0.0;
//#if VEC
//#if !RMS
  for (var k = first * 4u; k < params.length; k += stride * 4u) {
    let v = four(base, k);
    sum += (v[0] + v[1]) + (v[2] + v[3]);
    count += 4.0;
  }
  center = sum / max(count, 1.0);
//#endif
  for (var k = first * 4u; k < params.length; k += stride * 4u) {
    let d = four(base, k) - vec4<f32>(center);
    squares += dot(d, d);
  }
//#else
//#if !RMS
  for (var k = first; k < params.length; k += stride) {
    sum += one(base, k);
    count += 1.0;
  }
  center = sum / max(count, 1.0);
//#endif
  for (var k = first; k < params.length; k += stride) {
    let d = one(base, k) - center;
    squares += d * d;
  }
//#endif
  return vec3<f32>(count, center, squares);
}

fn write_row(row: u32, first: u32, stride: u32, center: f32, factor: f32) {
  let base = row * params.length;
//#if SCALES
  let turn = (row % params.scales) * params.length;
//#endif
//#if PLACES
  let to = load_places(row) * params.length;
//#endif
//#if VEC
  for (var k = first * 4u; k < params.length; k += stride * 4u) {
    let g = (base + k) >> 2u;
    var v = four(base, k);
//#if JOINED
    store4_joined(g, v[0], v[1], v[2], v[3]);
//#endif
    v = (v - vec4<f32>(center)) * factor;
//#if SCALE
//#if SCALES
    v *= load4_scale((turn + k) >> 2u);
//#else
    v *= load4_scale(k >> 2u);
//#endif
//#endif
//#if BIAS
    v += load4_bias(k >> 2u);
//#endif
//#if PLACES
    store4_y((to + k) >> 2u, v[0], v[1], v[2], v[3]);
//#else
    store4_y(g, v[0], v[1], v[2], v[3]);
//#endif
  }
//#else
  for (var k = first; k < params.length; k += stride) {
    var v = one(base, k);
//#if JOINED
    store_joined(base + k, v);
//#endif
    v = (v - center) * factor;
//#if SCALE
//#if SCALES
    v *= load_scale(turn + k);
//#else
    v *= load_scale(k);
//#endif
//#endif
//#if BIAS
    v += load_bias(k);
//#endif
//#if PLACES
    store_y(to + k, v);
//#else
    store_y(base + k, v);
//#endif
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

//#include optimized
//#if SUBGROUP
alias Share = vec3<f32>;

fn combine_shares(a: Share, b: Share) -> Share { return combine_moments(a, b); }

//#include lanes
//#elif SHARED
var<workgroup> parts: array<vec3<f32>, WG>;
//#endif

//#include rows_of_workgroup
  let base = min(row, params.rows - 1u) * params.length;
//#include rows_folded combine=combine_moments
  let factor = 1.0 / sqrt(total.z / f32(params.length) + params.epsilon);
  if (row < params.rows) { write_row(row, lane, LANES, total.y, factor); }
}
//#include fallback
// Every invocation reads the whole row for its mean, and all of them have when the first results take its place. A workgroup's
// rows are as many as it takes for all: WG / LANES, or fewer.
@compute @workgroup_size(64)
//#include workgroup name=fallback place=place
  let groups = nwg.x * nwg.y * nwg.z;
  let share = (params.rows + groups - 1u) / groups;
  let lanes = 64u / share;
  let within = place / lanes;
  let row = workgroup_index(wid, nwg) * share + within;
  let total = fold(min(row, params.rows - 1u) * params.length, 0u, 1u);
  storageBarrier();
  let factor = 1.0 / sqrt(total.z / f32(params.length) + params.epsilon);
  if (within < share && row < params.rows) { write_row(row, place % lanes, lanes, total.y, factor); }
}
//#include fallback_end
