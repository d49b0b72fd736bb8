// y[b, h, i] = sum over s of exp(top[s] - T) * parts[s, b, h, i] / sum over s of exp(top[s] - T) * sum[s], T = max top:
// the second pass of attention_tiled and attention_few_queries where keys were split. `stats` holds top and sum of every
// split and query; a sum of 0 says that the split has no results. SINK: exp(sink[h]) is added to the divisor.
//
// LANES invocations share a vec4 of results: each reduces every LANESth split, TRIPS of them at a time, whose loads do not
// wait for each other; the first of them reduces theirs.
//#tensors parts, stats, sink -> y
const DIM_V: u32 = 64u;
const LANES: u32 = 1u;
const TRIPS: u32 = 5u;
const QUADS_V: u32 = (DIM_V + 3u) / 4u;
const SLOTS: u32 = 64u / LANES;
const LOWEST: f32 = -3.4028234663852886e38;

struct Params {
  y_strides: vec4<u32>,
  base: u32,
  queries: u32,
  heads: u32,
  rows: u32,     // queries of all heads
  splits: u32,
  jobs: u32,     // vec4s of results
  groups: u32,   // workgroups
}

// Of splits, or of all: the largest score, and divisor and results relative to it.
struct Share {
  top: f32,
  sum: f32,
  x: vec4<f32>,
}

var<workgroup> shares: array<Share, 64>;

fn combined(a: Share, b: Share) -> Share {
  let top = max(a.top, b.top);
  let of_a = exp(a.top - top);
  let of_b = exp(b.top - top);
  return Share(top, a.sum * of_a + b.sum * of_b, a.x * of_a + b.x * of_b);
}

fn share_of(split: u32, row: u32, d: u32) -> Share {
  let at = min(split, params.splits - 1u) * params.rows + row;
  let top = load_stats(at * 2u);
  let sum = select(load_stats(at * 2u + 1u), 0.0, split >= params.splits);
  var x = vec4<f32>();
//#if VEC
  x = load4_parts(at * QUADS_V + d);
//#else
  for (var c = 0u; c < 4u; c++) {
    if (4u * d + c < DIM_V) { x[c] = load_parts(at * DIM_V + 4u * d + c); }
  }
//#endif
  return Share(select(top, LOWEST, sum == 0.0), sum, select(x, vec4<f32>(), sum == 0.0));
}

@compute @workgroup_size(64)
//#include numbered_workgroup name=main place=t number=group count=params.groups
  let job = group * SLOTS + t % SLOTS;
  let row = min(job, params.jobs - 1u) / QUADS_V;
  let d = job % QUADS_V;
  var all = Share(LOWEST, 0.0, vec4<f32>());
  for (var first = t / SLOTS; first < params.splits; first += LANES * TRIPS) {
    var some: array<Share, TRIPS>;
    //#unroll
    for (var n = 0u; n < TRIPS; n++) {
      some[n] = share_of(first + n * LANES, row, d);
    }
    // As in reduced_partials, so that the products that reduce shares on the way give the same bits.
    var these = Share(LOWEST, 0.0, vec4<f32>());
    //#unroll
    for (var n = 0u; n < TRIPS; n++) {
      these.top = max(these.top, some[n].top);
    }
    //#unroll
    for (var n = 0u; n < TRIPS; n++) {
      let share = exp(some[n].top - these.top);
      these.sum += share * some[n].sum;
      these.x += share * some[n].x;
    }
    all = combined(all, these);
  }
  shares[t] = all;
  workgroupBarrier();
  if (t >= SLOTS || job >= params.jobs) { return; }
  for (var lane = 1u; lane < LANES; lane++) {
    all = combined(all, shares[lane * SLOTS + t]);
  }
  let head = row / params.queries;
  let batch = head / params.heads;
  let place = vec3<u32>(batch, head - batch * params.heads, row - head * params.queries);
//#if SINK
  all = combined(all, Share(load_sink(place.y), 1.0, vec4<f32>()));
//#endif
//#if EMPTY_ZERO
  let x = all.x * select(1.0 / all.sum, 0.0, all.sum == 0.0);
//#else
  let x = all.x * (1.0 / all.sum);
//#endif
  let base = params.base + dot(place, params.y_strides.xyz);
//#include attention_put
}
