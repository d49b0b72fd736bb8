// y[b, h, i] = sum over j of softmax_j(scale * q[b, h, i] . k[b, h / group, j] + mask[b, h, i, j]) * v[b, h / group, j]
//
// Flash attention (Dao et al., 2022) as two register-tiled products: a workgroup takes ROWS queries of one head and
// walks over the keys, KEYS at a time. An invocation makes TALL x 4 scores, then, the same rows of the result: TALL x
// WIDE_V vec4s. In between the scores lie in workgroup memory, where an invocation takes SPAN keys of four rows: their
// maximum and sum (online softmax of Milakov and Gimelshein, 2018).
//
// q and k are staged transposed, so both products read whole vec4s of rows and of columns; an invocation turns blocks of
// 4 x 4 in registers, because vec4s are written whole: a component alone may be a race. Lane c of the vec4 tx of the
// staged keys is key c * TX + tx: the scores an invocation writes then fall into different banks. Keys and values pass
// through the same memory; the next ones are on their way into registers while a product runs.
//
// SPLIT: keys are split across workgroups; y is [split, ...] of sums not yet divided, `stats` their maxima and
// divisors, for attention_merge. VEC, EMPTY_ZERO, views: as in attention_flash.
// RANGE, CAP, SINK too; with SPLIT the sink is for attention_merge. FALLBACK: `kernels/ir/fallback.py`.
//#tensors q, k, v, mask, lengths, prompt, sink -> y, stats
//#if HALF
//
// HALF: k and v are float16, and stay it in workgroup memory: the numbers are the same, and widened before they are
// multiplied. HALF_Q: so is q; scores are scaled, not q, whose products with the scale are none of float16.
enable f16;
//#endif
const DIM: u32 = 64u;
const DIM_V: u32 = 64u;
const ROWS: u32 = 64u;
const KEYS: u32 = 32u;
const TALL: u32 = 8u;

const TX: u32 = KEYS / 4u;
const TY: u32 = ROWS / TALL;
const THREADS: u32 = TX * TY;
const QUADS: u32 = (DIM + 3u) / 4u;
const QUADS_V: u32 = (DIM_V + 3u) / 4u;
const ROW_QUADS: u32 = ROWS / 4u;
const WIDE_V: u32 = (QUADS_V + TX - 1u) / TX;
const TALL_QUADS: u32 = TALL / 4u;
const RESULTS: u32 = TALL * WIDE_V;
const PITCH_P: u32 = ROW_QUADS + 1u;
const BLOCKS_K: u32 = (TX * QUADS + THREADS - 1u) / THREADS;
const BLOCKS_Q: u32 = (ROW_QUADS * QUADS + THREADS - 1u) / THREADS;
const LOADS_K: u32 = BLOCKS_K * 4u;
const LOADS_V: u32 = (KEYS * QUADS_V + THREADS - 1u) / THREADS;
const GROUPS: u32 = THREADS / ROW_QUADS;
const SPAN: u32 = KEYS / GROUPS;
const LOWEST: f32 = -3.4028234663852886e38;

struct Params {
//#include attention_fields
  tiles: u32,             // workgroups along the queries of a head
  jobs: u32,              // workgroups in all
  plane: u32,             // workgroups a split
  steps: u32,             // tiles of keys a workgroup walks over, without RANGE
  splits: u32,
  split_stride: u32,      // elements from one split of y to the next
  scale: f32,
  cap: f32,
}

//#include attention_views
//#if FALLBACK
// <fallback>
//#include attention_share
//#include attention_row
// </fallback>
//
// <optimized>
//#endif
//#if HALF_Q
var<workgroup> tile_q: array<vec4<f16>, QUADS * 4u * ROW_QUADS>;
//#else
var<workgroup> tile_q: array<vec4<f32>, QUADS * 4u * ROW_QUADS>;
//#endif
//#if HALF
var<workgroup> tile_kv: array<vec4<f16>, max(QUADS * 4u * TX, KEYS * QUADS_V)>;
//#else
var<workgroup> tile_kv: array<vec4<f32>, max(QUADS * 4u * TX, KEYS * QUADS_V)>;
//#endif
var<workgroup> tile_p: array<vec4<f32>, KEYS * PITCH_P>;
var<workgroup> part: array<vec4<f32>, THREADS>;
var<workgroup> decay: array<vec4<f32>, ROW_QUADS>;
//#if RANGE
var<workgroup> seen: array<vec2<u32>, ROWS>;
var<workgroup> stretch: vec2<u32>;
//#endif

// Key `c` of block `e` of the tile from `first` on: blocks are of keys TX apart, and of one vec4 of components.
fn fetch_k(base: u32, first: u32, e: u32, c: u32) -> vec4<f32> {
  let key = min(first + c * TX + e % TX, params.keys - 1u);
  return quad_k(base + key * params.k_strides.z, min(e / TX, QUADS - 1u));
}

fn fetch_v(base: u32, first: u32, e: u32) -> vec4<f32> {
  let key = min(first + e / QUADS_V, params.keys - 1u);
  return quad_v(base + key * params.v_strides.z, e % QUADS_V);
}

@compute @workgroup_size(THREADS)
//#include numbered_workgroup name=main place=local number=job count=params.jobs
  let t = local % THREADS;
  let tx = t % TX;
  let ty = t / TX;
  let quad_row = t % ROW_QUADS;
  let group = t / ROW_QUADS;
//#if SPLIT
  let split = job / params.plane;
  let within = job - split * params.plane;
//#else
  let split = 0u;
  let within = job;
//#endif
  let head = within / params.tiles;
  let row0 = (within - head * params.tiles) * ROWS;
  let batch = head / params.heads;
  let at = vec2<u32>(batch, head - batch * params.heads);
  let q_base = params.bases.x + dot(at, params.q_strides.xy);
  let at_kv = vec2<u32>(batch, at.y / params.group);
  let k_base = params.bases.y + dot(at_kv, params.k_strides.xy);
  let v_base = params.bases.z + dot(at_kv, params.v_strides.xy);
//#if MASK
  let mask_base = dot(at, params.mask_strides.xy);
//#endif
//#if RANGE
  if (local < ROWS) { seen[local] = visible(batch, min(row0 + local, params.queries - 1u)); }
  workgroupBarrier();
  if (local == 0u) {
    // What later queries see begins and ends later.
    let tiles = (max(seen[ROWS - 1u].y, seen[0].x) - seen[0].x + KEYS - 1u) / KEYS;
    let share = (tiles + params.splits - 1u) / params.splits;
    let before = min(split * share, tiles);
    stretch = vec2<u32>(seen[0].x + before * KEYS, min(share, tiles - before));
  }
  let span = workgroupUniformLoad(&stretch);
//#else
  let span = vec2<u32>(split * params.steps * KEYS, params.steps);
//#endif
  let start = span.x;
  let steps = span.y;

  for (var n = 0u; n < BLOCKS_Q; n++) {
    let e = t + n * THREADS;
    if (e < ROW_QUADS * QUADS) {
      let d = e / ROW_QUADS;
      var x: array<vec4<f32>, 4>;
      //#unroll
      for (var r = 0u; r < 4u; r++) {
        let row = min(row0 + e % ROW_QUADS * 4u + r, params.queries - 1u);
//#if HALF_Q
        x[r] = quad_q(q_base + row * params.q_strides.z, d);
//#else
        x[r] = quad_q(q_base + row * params.q_strides.z, d) * params.scale;
//#endif
      }
      //#unroll
      for (var c = 0u; c < 4u; c++) {
//#if HALF_Q
        tile_q[(d * 4u + c) * ROW_QUADS + e % ROW_QUADS] = vec4<f16>(vec4<f32>(x[0][c], x[1][c], x[2][c], x[3][c]));
//#else
        tile_q[(d * 4u + c) * ROW_QUADS + e % ROW_QUADS] = vec4<f32>(x[0][c], x[1][c], x[2][c], x[3][c]);
//#endif
      }
    }
  }
  var next_k: array<vec4<f32>, LOADS_K>;
  //#unroll
  for (var n = 0u; n < LOADS_K; n++) {
    next_k[n] = fetch_k(k_base, start, t + n / 4u * THREADS, n % 4u);
  }

  var sums: array<vec4<f32>, RESULTS>;
  //#unroll
  for (var i = 0u; i < RESULTS; i++) {
    sums[i] = vec4<f32>();
  }
  // Of the four rows at `quad_row`: the maximum, known to all groups, and the sum of this group's keys.
  var top = vec4<f32>(LOWEST);
  var sum = vec4<f32>();

  for (var step = 0u; step < steps; step++) {
    let first = start + step * KEYS;
    //#unroll
    for (var n = 0u; n < BLOCKS_K; n++) {
      let e = t + n * THREADS;
      if (e < TX * QUADS) {
        //#unroll
        for (var c = 0u; c < 4u; c++) {
//#if HALF
          let keys = vec4<f32>(next_k[n * 4u][c], next_k[n * 4u + 1u][c], next_k[n * 4u + 2u][c], next_k[n * 4u + 3u][c]);
          tile_kv[(e / TX * 4u + c) * TX + e % TX] = vec4<f16>(keys);
//#else
          tile_kv[(e / TX * 4u + c) * TX + e % TX] =
            vec4<f32>(next_k[n * 4u][c], next_k[n * 4u + 1u][c], next_k[n * 4u + 2u][c], next_k[n * 4u + 3u][c]);
//#endif
        }
      }
    }
    workgroupBarrier();

    var next_v: array<vec4<f32>, LOADS_V>;
    //#unroll
    for (var n = 0u; n < LOADS_V; n++) {
      next_v[n] = fetch_v(v_base, first, t + n * THREADS);
    }
    var score: array<vec4<f32>, TALL>;
    //#unroll
    for (var r = 0u; r < TALL; r++) {
      score[r] = vec4<f32>();
    }
    for (var d = 0u; d < QUADS; d++) {
      //#unroll
      for (var c = 0u; c < 4u; c++) {
//#if HALF
        let right = vec4<f32>(tile_kv[(d * 4u + c) * TX + tx]);
//#else
        let right = tile_kv[(d * 4u + c) * TX + tx];
//#endif
        //#unroll
        for (var g = 0u; g < TALL_QUADS; g++) {
//#if HALF_Q
          let left = vec4<f32>(tile_q[(d * 4u + c) * ROW_QUADS + g * TY + ty]);
//#else
          let left = tile_q[(d * 4u + c) * ROW_QUADS + g * TY + ty];
//#endif
          score[g * 4u + 0u] += left[0] * right;
          score[g * 4u + 1u] += left[1] * right;
          score[g * 4u + 2u] += left[2] * right;
          score[g * 4u + 3u] += left[3] * right;
        }
      }
    }
//#if HALF_Q
    //#unroll
    for (var r = 0u; r < TALL; r++) {
      score[r] *= params.scale;
    }
//#endif
//#if CAP
    //#unroll
    for (var r = 0u; r < TALL; r++) {
      score[r] = capped_quad(score[r], params.cap);
    }
//#endif
//#if MASK
    //#unroll
    for (var r = 0u; r < TALL; r++) {
      let row = min(row0 + (r / 4u * TY + ty) * 4u + r % 4u, params.queries - 1u);
      let line = mask_base + row * params.mask_strides.z;
      //#unroll
      for (var c = 0u; c < 4u; c++) {
        score[r][c] += f32(load_mask(line + min(first + c * TX + tx, params.keys - 1u) * params.mask_strides.w));
      }
    }
//#endif
//#if RANGE
    let hidden = vec4<f32>(f32_bits(0xff800000u, params.keys));
    let places = vec4<u32>(first + tx) + vec4<u32>(0u, TX, 2u * TX, 3u * TX);
    //#unroll
    for (var r = 0u; r < TALL; r++) {
      let mine = seen[(r / 4u * TY + ty) * 4u + r % 4u];
      score[r] = select(hidden, score[r], places - vec4<u32>(mine.x) < vec4<u32>(max(mine.x, mine.y) - mine.x));
    }
//#endif
    //#unroll
    for (var c = 0u; c < 4u; c++) {
      //#unroll
      for (var g = 0u; g < TALL_QUADS; g++) {
        tile_p[(c * TX + tx) * PITCH_P + g * TY + ty] =
          vec4<f32>(score[g * 4u + 0u][c], score[g * 4u + 1u][c], score[g * 4u + 2u][c], score[g * 4u + 3u][c]);
      }
    }
    workgroupBarrier();

    //#unroll
    for (var n = 0u; n < LOADS_V; n++) {
      let e = t + n * THREADS;
//#if HALF
      if (e < KEYS * QUADS_V) { tile_kv[e] = vec4<f16>(next_v[n]); }
//#else
      if (e < KEYS * QUADS_V) { tile_kv[e] = next_v[n]; }
//#endif
    }
    let after = start + min(step + 1u, steps - 1u) * KEYS;
    //#unroll
    for (var n = 0u; n < LOADS_K; n++) {
      next_k[n] = fetch_k(k_base, after, t + n / 4u * THREADS, n % 4u);
    }
    var held: array<vec4<f32>, SPAN>;
    var highest = top;
    //#unroll
    for (var n = 0u; n < SPAN; n++) {
      held[n] = tile_p[(group * SPAN + n) * PITCH_P + quad_row];
      if (first + group * SPAN + n < params.keys) { highest = max(highest, held[n]); }
    }
    part[t] = highest;
    workgroupBarrier();

    //#unroll
    for (var g = 0u; g < GROUPS; g++) {
      highest = max(highest, part[g * ROW_QUADS + quad_row]);
    }
    let factor = exp(top - highest);
    if (group == 0u) { decay[quad_row] = factor; }
    top = highest;
    sum *= factor;
    //#unroll
    for (var n = 0u; n < SPAN; n++) {
      let weight = select(vec4<f32>(), exp(held[n] - top), first + group * SPAN + n < params.keys);
      sum += weight;
      tile_p[(group * SPAN + n) * PITCH_P + quad_row] = weight;
    }
    workgroupBarrier();

    //#unroll
    for (var g = 0u; g < TALL_QUADS; g++) {
      let less = decay[g * TY + ty];
      //#unroll
      for (var n = 0u; n < WIDE_V; n++) {
        sums[(g * 4u + 0u) * WIDE_V + n] *= less[0];
        sums[(g * 4u + 1u) * WIDE_V + n] *= less[1];
        sums[(g * 4u + 2u) * WIDE_V + n] *= less[2];
        sums[(g * 4u + 3u) * WIDE_V + n] *= less[3];
      }
    }
    for (var j = 0u; j < KEYS / 4u; j++) {
      //#unroll
      for (var c = 0u; c < 4u; c++) {
        //#unroll
        for (var n = 0u; n < WIDE_V; n++) {
//#if HALF
          let right = vec4<f32>(tile_kv[(j * 4u + c) * QUADS_V + min(n * TX + tx, QUADS_V - 1u)]);
//#else
          let right = tile_kv[(j * 4u + c) * QUADS_V + min(n * TX + tx, QUADS_V - 1u)];
//#endif
          //#unroll
          for (var g = 0u; g < TALL_QUADS; g++) {
            let left = tile_p[(j * 4u + c) * PITCH_P + g * TY + ty];
            sums[(g * 4u + 0u) * WIDE_V + n] += left[0] * right;
            sums[(g * 4u + 1u) * WIDE_V + n] += left[1] * right;
            sums[(g * 4u + 2u) * WIDE_V + n] += left[2] * right;
            sums[(g * 4u + 3u) * WIDE_V + n] += left[3] * right;
          }
        }
      }
    }
    workgroupBarrier();
  }

  part[t] = sum;
  if (group == 0u) { decay[quad_row] = top; }
  workgroupBarrier();
//#if SPLIT
  if (group == 0u) {
    //#unroll
    for (var g = 0u; g < GROUPS - 1u; g++) {
      sum += part[(g + 1u) * ROW_QUADS + quad_row];
    }
    for (var r = 0u; r < 4u; r++) {
      let row = row0 + quad_row * 4u + r;
      if (row < params.queries) {
        let slot = ((split * (params.plane / params.tiles) + head) * params.queries + row) * 2u;
        store_stats(slot, top[r]);
        store_stats(slot + 1u, sum[r]);
      }
    }
  }
//#endif

  //#unroll
  for (var g = 0u; g < TALL_QUADS; g++) {
//#if SPLIT
    let share = vec4<f32>(1.0);
    let base = params.bases.w + split * params.split_stride + dot(at, params.y_strides.xy);
//#else
//#include attention_tiled_share
    let base = params.bases.w + dot(at, params.y_strides.xy);
//#endif
    //#unroll
    for (var r = 0u; r < 4u; r++) {
      let row = row0 + (g * TY + ty) * 4u + r;
      if (row < params.queries) {
        //#unroll
        for (var n = 0u; n < WIDE_V; n++) {
          put(base + row * params.y_strides.z, n * TX + tx, sums[(g * 4u + r) * WIDE_V + n] * share[r]);
        }
      }
    }
  }
}
//#include fallback
//#include attention_tiled_fallback
//#include fallback_end
