// y[b, h, i] = sum over j of softmax_j(scale * q[b, h, i] . k[b, h / group, j] + mask[b, h, i, j]) * v[b, h / group, j]
//
// An invocation makes a row, a query of a head, without workgroup memory: for adapters that run on a processor. Keys are
// taken KEYS at a time with online softmax. RANGE, CAP, SINK, VEC, EMPTY_ZERO, views: as in attention_flash.
//#tensors q, k, v, mask, lengths, prompt, sink -> y
const DIM: u32 = 64u;
const DIM_V: u32 = 64u;
const KEYS: u32 = 8u;
const WG: u32 = 8u;

const QUADS: u32 = (DIM + 3u) / 4u;
const QUADS_V: u32 = (DIM_V + 3u) / 4u;
const LOWEST: f32 = -3.4028234663852886e38;

struct Params {
//#include attention_fields
  rows: u32,              // rows in all
  scale: f32,
  cap: f32,
}

//#include attention_views
//#include attention_share
@compute @workgroup_size(WG)
//#include invocation job=row size=WG jobs=rows
  let whole_head = row / params.queries;
  let query = row - whole_head * params.queries;
  let batch = whole_head / params.heads;
  let head = whole_head - batch * params.heads;
  let at = vec3<u32>(batch, head, query);
  let q_base = params.bases.x + dot(at, params.q_strides.xyz);
  let k_base = params.bases.y + dot(vec2<u32>(batch, head / params.group), params.k_strides.xy);
  let v_base = params.bases.z + dot(vec2<u32>(batch, head / params.group), params.v_strides.xy);
//#if MASK
  let mask_base = dot(at, params.mask_strides.xyz);
//#endif
//#if RANGE
  let span = visible(batch, query);
//#else
  // Mesa's lavapipe compiles loops whose ends are parameters alone anew each time the pipeline changes, for 2 ms: an end
  // that depends on the invocation is none of these.
  let span = vec2<u32>(0u, select(params.keys, 0u, gid.x == 0xffffffffu));
//#endif

  var x: array<vec4<f32>, QUADS>;
  for (var d = 0u; d < QUADS; d++) {
    x[d] = quad_q(q_base, d) * params.scale;
  }
  var sums: array<vec4<f32>, QUADS_V>;
  for (var d = 0u; d < QUADS_V; d++) {
    sums[d] = vec4<f32>();
  }
  var top = LOWEST;
  var sum = 0.0;
  for (var first = span.x; first < span.y; first += KEYS) {
    let count = min(KEYS, span.y - first);
    var score: array<f32, KEYS>;
    var highest = top;
    for (var n = 0u; n < count; n++) {
      let at_k = k_base + (first + n) * params.k_strides.z;
      var products = vec4<f32>();
      for (var d = 0u; d < QUADS; d++) {
        products += x[d] * quad_k(at_k, d);
      }
//#include attention_score mask="mask_base + (first + n) * params.mask_strides.w"
      score[n] = s;
      highest = max(highest, s);
    }
    let less = exp(top - highest);
    top = highest;
    sum *= less;
    for (var d = 0u; d < QUADS_V; d++) {
      sums[d] *= less;
    }
    for (var n = 0u; n < count; n++) {
      let weight = exp(score[n] - top);
      sum += weight;
      let at_v = v_base + (first + n) * params.v_strides.z;
      for (var d = 0u; d < QUADS_V; d++) {
        sums[d] += weight * quad_v(at_v, d);
      }
    }
  }
  let share = share_of(top, sum, head);
  let out = params.bases.w + dot(at, params.y_strides.xyz);
  for (var d = 0u; d < QUADS_V; d++) {
    put(out, d, sums[d] * share);
  }
}
