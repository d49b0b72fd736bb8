// y[b, h, i] = sum over j of softmax_j(scale * q[b, h, i] . k[b, h / group, j] + mask[b, h, i, j]) * v[b, h / group, j]
// for few queries: decoding (flash decoding: Dao et al., 2023).
//
// A workgroup takes ROWS rows, queries of all heads that share a head of k and v, and a stretch of the keys, KEYS at a
// time. SHARE neighbours read a key and add up their parts of its scores; LANES invocations find a row's maximum and
// sum (online softmax of Milakov and Gimelshein, 2018); for the result an invocation owns a vec4 of components, WIDE of
// them where there are more than THREADS, of all rows, and every GROUPS-th key. Loads of a step do not wait for each other:
// with one query there is little else to do meanwhile.
//
// SPLIT: keys are split across workgroups; y is [split, ...] of sums not yet divided, `stats` their maxima and
// divisors, for attention_merge. RANGE, CAP, SINK, VEC, EMPTY_ZERO, views: as in attention_flash. The stretches are
// shares of the keys that are seen, which only the lengths tell; one without keys has the sum 0 and no results.
//
// NEW_ROW: one query, turned and normalised here, as `prepare_heads` does, and with it the newest row of keys and
// values, which comes from `own_key` and `own_value`, with PACKED from q, and is set into k and v, where all others are. Needs VEC, LENGTHS.
// PACKED_ROWS, NIBBLES: as attention_views.
// FALLBACK: `kernels/ir/fallback.py`; not with NEW_ROW.
//#tensors q, k, v, mask, lengths, prompt, sink, own_key, own_value, cosines, sines, positions, q_weight, k_weight -> y, stats, k, v
const DIM: u32 = 64u;
const DIM_V: u32 = 64u;
const ROWS: u32 = 4u;
const KEYS: u32 = 128u;
const SHARE: u32 = 2u;
const LANES: u32 = 16u;
const TOGETHER: u32 = 4u;

const THREADS: u32 = KEYS * SHARE;
const QUADS: u32 = (DIM + 3u) / 4u;
const QUADS_V: u32 = (DIM_V + 3u) / 4u;
const OWNERS: u32 = min(QUADS_V, THREADS);
const WIDE: u32 = (QUADS_V + THREADS - 1u) / THREADS;
const GROUPS: u32 = THREADS / OWNERS;
const RESULTS: u32 = ROWS * WIDE;
const CHUNKS: u32 = (RESULTS + TOGETHER - 1u) / TOGETHER;
const SPAN: u32 = KEYS / LANES;
const PER: u32 = (QUADS + SHARE - 1u) / SHARE;
const TURNS: u32 = (KEYS + GROUPS - 1u) / GROUPS;
const PACKS: u32 = (ROWS + 3u) / 4u;
// Results that are added up at once, and how many invocations add up each.
const SUMS: u32 = TOGETHER * OWNERS;
const HELPERS: u32 = min(GROUPS, max(1u, THREADS / SUMS));
const LOWEST: f32 = -3.4028234663852886e38;

struct Params {
//#include attention_fields
  blocks: u32,            // workgroups along the rows of a head of k
  splits: u32,
  plane: u32,             // workgroups a split
  jobs: u32,              // workgroups in all
  rows: u32,              // rows in all
  split_stride: u32,      // elements from one split of y to the next
  scale: f32,
  cap: f32,
//#if NEW_ROW
  new_row_strides: vec4<u32>,  // of batches and heads: of own_key, of own_value
  key_base: u32,
  value_base: u32,
  half: u32,
  angle_rows: u32,
  epsilon: f32,
//#endif
}

//#include attention_views
//#if NEW_ROW
//#if PACKED_ROWS
//#include packed_row_sizes
var<workgroup> codings: array<u32, 2>;
//#endif
// The newest row of k, and then that of v.
var<workgroup> new_rows: array<vec4<f32>, QUADS + QUADS_V>;
//#include attention_new_quad
//#endif

struct Row {
  head: u32,
  query: u32,
  is_real: bool,
}

// Row `row` of the rows of a head of k: neighbours are the heads of one query.
fn row_of(row: u32) -> Row {
  let query = row / params.group;
  return Row(row - query * params.group, min(query, params.queries - 1u), query < params.queries);
}

//#include attention_share
//#if FALLBACK
// <fallback>
//#include attention_row
// </fallback>
//
// <optimized>
//#endif
var<workgroup> tile_q: array<vec4<f32>, ROWS * QUADS>;
// Of each invocation: its part of the scores of a key, and at the end TOGETHER of its results.
var<workgroup> shared_parts: array<vec4<f32>, max(PACKS, TOGETHER) * THREADS>;
var<workgroup> scores: array<f32, ROWS * KEYS>;
var<workgroup> part: array<f32, ROWS * LANES>;
var<workgroup> decay: array<f32, ROWS>;
var<workgroup> seen: array<vec2<u32>, ROWS>;
var<workgroup> stretch: vec2<u32>;
//#if SUBGROUP

alias Share = f32;

fn combine_shares(a: Share, b: Share) -> Share { return max(a, b); }

//#include lanes
//#endif

// Vec4 `d` of value `turn` of the step that begins at `first`, of which there are `count`; zero of those after them.
fn value_of(v_base: u32, first: u32, turn: u32, count: u32, d: u32) -> vec4<f32> {
  let at = v_base + (first + select(0u, turn, turn < count)) * params.v_strides.z;
  return select(vec4<f32>(), quad_v(at, min(d, QUADS_V - 1u)), turn < count);
}

@compute @workgroup_size(THREADS)
//#include numbered_workgroup name=main place=local number=job count=params.jobs
  let t = local % THREADS;
  let split = job / params.plane;
  let within = job - split * params.plane;
  let shared_head = within / params.blocks;
  let row0 = (within - shared_head * params.blocks) * ROWS;
  let kv_heads = params.heads / params.group;
  let batch = shared_head / kv_heads;
  let kv_head = shared_head - batch * kv_heads;
  let head0 = kv_head * params.group;
  let k_base = params.bases.y + dot(vec2<u32>(batch, kv_head), params.k_strides.xy);
  let v_base = params.bases.z + dot(vec2<u32>(batch, kv_head), params.v_strides.xy);

//#if NEW_ROW
  let newest = placed(batch).x;
  let angles = angles_of(batch, newest);
//#endif
  for (var i = t; i < ROWS * QUADS; i += THREADS) {
    let row = row_of(row0 + i / QUADS);
    let base = params.bases.x + dot(vec3<u32>(batch, head0 + row.head, row.query), params.q_strides.xyz);
//#if NEW_ROW
    tile_q[i] = new_quad(0u, base, i % QUADS, angles) * params.scale;
//#else
    tile_q[i] = quad_q(base, i % QUADS) * params.scale;
//#endif
  }
//#if NEW_ROW
//#include attention_new_row
//#endif
  if (t < ROWS) {
//#if RANGE
    seen[t] = visible(batch, row_of(row0 + t).query);
//#else
    seen[t] = vec2<u32>(0u, params.keys);
//#endif
    decay[t] = 1.0;
  }
  workgroupBarrier();
  if (t == 0u) {
    // Rows are in the order of their queries, and what later queries see begins and ends later.
    let whole = vec2<u32>(seen[0].x, max(seen[0].x, seen[ROWS - 1u].y));
    let share = ((whole.y - whole.x + KEYS - 1u) / KEYS + params.splits - 1u) / params.splits * KEYS;
    let first = min(whole.x + split * share, whole.y);
    stretch = vec2<u32>(first, min(first + share, whole.y));
  }
  let span = workgroupUniformLoad(&stretch);

  let group = t / OWNERS;
  let owned = t % OWNERS;
  let row = t / LANES;
  var sums: array<vec4<f32>, RESULTS>;
  //#unroll
  for (var i = 0u; i < RESULTS; i++) {
    sums[i] = vec4<f32>();
  }
  // Of the row at t / LANES: the maximum, known to all its lanes, and the sum of this lane's keys.
  var top = LOWEST;
  var sum = 0.0;

  for (var first = span.x; first < span.y; first += KEYS) {
    let nearest = min(first + t / SHARE, span.y - 1u);
    let at_k = k_base + nearest * params.k_strides.z;
    let count = select(0u, min(KEYS, span.y - first), group < GROUPS);
//#if FEW_TURNS
    // Values are on their way while scores are made.
    var coming: array<vec4<f32>, TURNS * WIDE>;
    //#unroll
    for (var i = 0u; i < TURNS; i++) {
      //#unroll
      for (var n = 0u; n < WIDE; n++) {
        coming[i * WIDE + n] = value_of(v_base, first, group + i * GROUPS, count, owned + n * THREADS);
      }
    }
//#endif
    var score: array<vec4<f32>, PACKS>;
    //#unroll
    for (var p = 0u; p < PACKS; p++) {
      score[p] = vec4<f32>();
    }
    //#unroll FEW_QUADS
    for (var n = 0u; n < PER; n++) {
      let d = min(n * SHARE + t % SHARE, QUADS - 1u);
//#if NEW_ROW
      let key = select(quad_k(at_k, d), new_rows[d], i32(nearest) == newest);
//#else
      let key = quad_k(at_k, d);
//#endif
      let x = select(vec4<f32>(), key, n * SHARE + t % SHARE < QUADS);
      //#unroll
      for (var r = 0u; r < ROWS; r++) {
        score[r / 4u][r % 4u] += dot(tile_q[r * QUADS + d], x);
      }
    }
//#if !SUBGROUP
    //#unroll
    for (var p = 0u; p < PACKS; p++) {
      shared_parts[p * THREADS + t] = score[p];
    }
    workgroupBarrier();
//#endif

    let hidden = f32_bits(0xff800000u, params.keys);
//#if SUBGROUP
    // Of the rows of its key an invocation keeps every SHAREth score.
    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      let i = r * KEYS + t / SHARE;
      let key = first + t / SHARE;
      var s = 0.0;
      //#unroll
      for (var n = 0u; n < SHARE; n++) {
        s += subgroupShuffle(score[r / 4u][r % 4u], t % SUBGROUP - t % SHARE + n);
      }
//#else
    for (var i = t; i < ROWS * KEYS; i += THREADS) {
      let r = i / KEYS;
      let key = first + i % KEYS;
      var s = 0.0;
      //#unroll
      for (var n = 0u; n < SHARE; n++) {
        s += shared_parts[r / 4u * THREADS + i % KEYS * SHARE + n][r % 4u];
      }
//#endif
//#if CAP
      s = capped(s, params.cap);
//#endif
      let is_seen = (key < span.y) & (key >= seen[r].x) & (key < seen[r].y);
//#if MASK
      let place = row_of(row0 + r);
      let at = vec4<u32>(batch, head0 + place.head, place.query, min(key, span.y - 1u));
      s += f32(load_mask(dot(at, params.mask_strides)));
//#endif
//#if SUBGROUP
      if (r % SHARE == t % SHARE) { scores[i] = select(hidden, s, is_seen); }
//#else
      scores[i] = select(hidden, s, is_seen);
//#endif
    }
    workgroupBarrier();

//#if SUBGROUP
    var highest = top;
    if (row < ROWS) {
      //#unroll
      for (var n = 0u; n < SPAN; n++) {
        highest = max(highest, scores[row * KEYS + n * LANES + t % LANES]);
      }
    }
    highest = reduced_for_all(highest, t);
//#else
    if (row < ROWS) {
      var highest = top;
      //#unroll
      for (var n = 0u; n < SPAN; n++) {
        highest = max(highest, scores[row * KEYS + n * LANES + t % LANES]);
      }
      part[t] = highest;
    }
    workgroupBarrier();
//#endif

    if (row < ROWS) {
      let before = top;
//#if SUBGROUP
      top = highest;
//#else
      //#unroll
      for (var n = 0u; n < LANES; n++) {
        top = max(top, part[row * LANES + n]);
      }
//#endif
      let factor = exp(before - top);
      if (t % LANES == 0u) { decay[row] = factor; }
      sum *= factor;
      //#unroll
      for (var n = 0u; n < SPAN; n++) {
        let at = row * KEYS + n * LANES + t % LANES;
        let weight = exp(scores[at] - top);
        sum += weight;
        scores[at] = weight;
      }
    }
    workgroupBarrier();

    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      //#unroll
      for (var n = 0u; n < WIDE; n++) {
        sums[r * WIDE + n] *= decay[r];
      }
    }
    //#unroll FEW_TURNS
    for (var i = 0u; i < TURNS; i++) {
      let turn = group + i * GROUPS;
      let j = select(0u, turn, turn < count);
      //#unroll
      for (var n = 0u; n < WIDE; n++) {
//#if FEW_TURNS
        var x = coming[i * WIDE + n];
//#else
        var x = value_of(v_base, first, turn, count, owned + n * THREADS);
//#endif
//#if NEW_ROW
        if (turn < count && i32(first + j) == newest) { x = new_rows[QUADS + min(owned + n * THREADS, QUADS_V - 1u)]; }
//#endif
        //#unroll
        for (var r = 0u; r < ROWS; r++) {
          sums[r * WIDE + n] += scores[r * KEYS + j] * x;
        }
      }
    }
    workgroupBarrier();
  }

  if (row < ROWS) {
    part[t] = sum;
    if (t % LANES == 0u) { decay[row] = top; }
  }
  //#unroll
  for (var c = 0u; c < CHUNKS; c++) {
    //#unroll
    for (var n = 0u; n < TOGETHER; n++) {
      if (c * TOGETHER + n < RESULTS) { shared_parts[n * THREADS + t] = sums[min(c * TOGETHER + n, RESULTS - 1u)]; }
    }
    workgroupBarrier();
    for (var i = t; i < SUMS * HELPERS; i += THREADS) {
      let helper = i / SUMS;
      let at = i % SUMS / OWNERS * THREADS + i % SUMS % OWNERS;
      var x = shared_parts[at + helper * OWNERS];
      for (var g = helper + HELPERS; g < GROUPS; g += HELPERS) {
        x += shared_parts[at + g * OWNERS];
      }
      shared_parts[at + helper * OWNERS] = x;
    }
    workgroupBarrier();
    for (var i = t; i < SUMS; i += THREADS) {
      let result = c * TOGETHER + i / OWNERS;
      if (result < RESULTS) {
        let at = i / OWNERS * THREADS + i % OWNERS;
        var x = shared_parts[at];
        for (var g = 1u; g < HELPERS; g++) {
          x += shared_parts[at + g * OWNERS];
        }
        store_quad(batch, head0, row0, split, result / WIDE, i % OWNERS + result % WIDE * THREADS, x);
      }
    }
    workgroupBarrier();
  }
}

// Stores vec4 `d` of the results of row `r`.
fn store_quad(batch: u32, head0: u32, row0: u32, split: u32, r: u32, d: u32, x: vec4<f32>) {
  let place = row_of(row0 + r);
  if (!place.is_real || d >= QUADS_V) { return; }
  let at = vec3<u32>(batch, head0 + place.head, place.query);
  var whole = 0.0;
  for (var n = 0u; n < LANES; n++) {
    whole += part[r * LANES + n];
  }
  var base = params.bases.w + dot(at, params.y_strides.xyz);
//#if SPLIT
  base += split * params.split_stride;
  if (d == 0u) {
    let slot = 2u * (split * params.rows + (at.x * params.heads + at.y) * params.queries + at.z);
    store_stats(slot, decay[r]);
    store_stats(slot + 1u, whole);
  }
  put(base, d, x);
//#else
  put(base, d, x * share_of(decay[r], whole, at.y));
//#endif
}
//#include fallback
//#include attention_few_queries_fallback
//#include fallback_end
