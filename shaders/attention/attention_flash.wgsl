// y[b, h, i] = sum over j of softmax_j(scale * q[b, h, i] . k[b, h / group, j] + mask[b, h, i, j]) * v[b, h / group, j]
//
// Flash attention: the scores never leave the workgroup (Dao et al., 2022; online softmax of Milakov and Gimelshein,
// 2018). A workgroup takes ROWS queries of one head; SPLIT invocations share a query, each walking every SPLIT-th key
// with a maximum, a sum and an output of its own, which are merged at the end. Keys and then values of KEYS positions
// pass through the same workgroup memory. TOGETHER keys of an invocation's are unrolled: all of them would be some
// thousand lines, which a driver compiles for half a second.
//
// q, k, v, y and the mask are strided views (batch, head, position, component), so that the reshapes and transposes
// around attention move nothing. VEC: components are contiguous and all strides whole vec4s. A row whose every key is
// masked by -infinity gives 0 with EMPTY_ZERO, else NaN as the formula does. CAP: scores become cap * tanh(score / cap)
// before the mask. SINK: exp(sink[h]) is added to the divisor. RANGE: a query sees the keys near its position alone;
// LENGTHS: of each batch entry, the number of keys, of which the queries are the last (int64 with LONG); PROMPT: a number
// that says, where it is that of the queries, that these are the first instead.
//#tensors q, k, v, mask, lengths, prompt, sink -> y
const DIM: u32 = 64u;
const DIM_V: u32 = 64u;
const ROWS: u32 = 16u;
const SPLIT: u32 = 4u;
const KEYS: u32 = 64u;
const TOGETHER: u32 = 4u;

const QUADS: u32 = (DIM + 3u) / 4u;
const QUADS_V: u32 = (DIM_V + 3u) / 4u;
// One vec4 of padding a row: invocations that share a query read neighbouring keys from different banks.
const PITCH: u32 = QUADS + 1u;
const PITCH_V: u32 = QUADS_V + 1u;
const THREADS: u32 = ROWS * SPLIT;
const MINE: u32 = KEYS / SPLIT;
const LOWEST: f32 = -3.4028234663852886e38;

struct Params {
//#include attention_fields
  tiles: u32,             // workgroups along the queries of a head
  jobs: u32,              // workgroups in all
  scale: f32,
  cap: f32,
}

var<workgroup> tile: array<vec4<f32>, max(KEYS * max(PITCH, PITCH_V), THREADS / 2u * PITCH_V)>;
// Of each invocation its own.
var<workgroup> scores: array<f32, MINE * THREADS>;
var<workgroup> part_top: array<f32, THREADS>;
var<workgroup> part_sum: array<f32, THREADS>;
//#if RANGE
var<workgroup> stretch: vec2<u32>;
//#endif

//#include attention_views
@compute @workgroup_size(THREADS)
//#include numbered_workgroup name=main place=lane number=job count=params.jobs
  let head = job / params.tiles;
  let batch = head / params.heads;
  let at = vec2<u32>(batch, head - batch * params.heads);
  let row = (job - head * params.tiles) * ROWS + lane / SPLIT;
  let part = lane % SPLIT;
  let query = min(row, params.queries - 1u);

  let q_base = params.bases.x + dot(vec3<u32>(at, query), params.q_strides.xyz);
  let at_kv = vec2<u32>(batch, at.y / params.group);
  let k_base = params.bases.y + dot(at_kv, params.k_strides.xy);
  let v_base = params.bases.z + dot(at_kv, params.v_strides.xy);
//#if MASK
  let mask_base = dot(vec3<u32>(at, query), params.mask_strides.xyz);
//#endif

//#if RANGE
  let seen = visible(batch, query);
  // What later queries see begins and ends later.
  if (lane == 0u) { stretch.x = seen.x; }
  if (lane == THREADS - 1u) { stretch.y = seen.y; }
  let span = workgroupUniformLoad(&stretch);
//#else
  let span = vec2<u32>(0u, params.keys);
  let seen = span;
//#endif

  var x: array<vec4<f32>, QUADS>;
  //#unroll
  for (var d = 0u; d < QUADS; d++) {
    x[d] = quad_q(q_base, d) * params.scale;
  }
  var sums: array<vec4<f32>, QUADS_V>;
  //#unroll
  for (var d = 0u; d < QUADS_V; d++) {
    sums[d] = vec4<f32>();
  }
  var top = LOWEST;
  var sum = 0.0;

  for (var first = span.x; first < span.y; first += KEYS) {
    for (var i = lane; i < KEYS * QUADS; i += THREADS) {
      let j = min(first + i / QUADS, span.y - 1u);
      tile[i / QUADS * PITCH + i % QUADS] = quad_k(k_base + j * params.k_strides.z, i % QUADS);
    }
    workgroupBarrier();
    var highest = top;
    for (var turn = 0u; turn < MINE; turn += TOGETHER) {
      //#unroll
      for (var n = 0u; n < TOGETHER; n++) {
        let j = (turn + n) * SPLIT + part;
        var products = vec4<f32>();
        //#unroll
        for (var d = 0u; d < QUADS; d++) {
          products += x[d] * tile[j * PITCH + d];
        }
//#include attention_score mask="mask_base + min(first + j, span.y - 1u) * params.mask_strides.w"
        scores[(turn + n) * THREADS + lane] = s;
        if (first + j >= seen.x && first + j < seen.y) { highest = max(highest, s); }
      }
    }
    workgroupBarrier();
    for (var i = lane; i < KEYS * QUADS_V; i += THREADS) {
      let j = min(first + i / QUADS_V, span.y - 1u);
      tile[i / QUADS_V * PITCH_V + i % QUADS_V] = quad_v(v_base + j * params.v_strides.z, i % QUADS_V);
    }
    workgroupBarrier();
    let less = exp(top - highest);
    top = highest;
    sum *= less;
    //#unroll
    for (var d = 0u; d < QUADS_V; d++) {
      sums[d] *= less;
    }
    for (var turn = 0u; turn < MINE; turn += TOGETHER) {
      //#unroll
      for (var n = 0u; n < TOGETHER; n++) {
        let j = (turn + n) * SPLIT + part;
        let score = scores[(turn + n) * THREADS + lane];
        let weight = select(0.0, exp(score - top), first + j >= seen.x && first + j < seen.y);
        sum += weight;
        //#unroll
        for (var d = 0u; d < QUADS_V; d++) {
          sums[d] += weight * tile[j * PITCH_V + d];
        }
      }
    }
    workgroupBarrier();
  }

  for (var step = SPLIT / 2u; step > 0u; step >>= 1u) {
    let giver = part >= step && part < 2u * step;
    let slot = (lane / SPLIT) * step + (part % step);
    if (giver) {
      part_top[slot] = top;
      part_sum[slot] = sum;
      //#unroll
      for (var d = 0u; d < QUADS_V; d++) {
        tile[slot * PITCH_V + d] = sums[d];
      }
    }
    workgroupBarrier();
    if (part < step) {
      let highest = max(top, part_top[slot]);
      let mine = exp(top - highest);
      let theirs = exp(part_top[slot] - highest);
      sum = sum * mine + part_sum[slot] * theirs;
      //#unroll
      for (var d = 0u; d < QUADS_V; d++) {
        sums[d] = sums[d] * mine + tile[slot * PITCH_V + d] * theirs;
      }
      top = highest;
    }
    workgroupBarrier();
  }

  if (part == 0u && row < params.queries) {
    var share = 1.0;
//#if SINK
    let sink = load_sink(at.y);
    let highest = max(top, sink);
    share = exp(top - highest);
    sum = sum * share + exp(sink - highest);
//#endif
//#if EMPTY_ZERO
    share *= select(1.0 / sum, 0.0, sum == 0.0);
//#else
    share /= sum;
//#endif
    let out = params.bases.w + dot(vec3<u32>(at, row), params.y_strides.xyz);
    //#unroll
    for (var d = 0u; d < QUADS_V; d++) {
      put(out, d, sums[d] * share);
    }
  }
}
