// y[b, h, i] = sum over s of exp(top[s] - T) * parts[s, b, h, i] / sum over s of exp(top[s] - T) * sum[s], T = max top:
// the second pass of attention_tiled and attention_few_queries where keys were split. `stats` holds top and sum of every
// split and query; a sum of 0 says that the split has no results. SINK: exp(sink[h]) is added to the divisor.
//#tensors parts, stats, sink -> y
const DIM_V: u32 = 64u;
const QUADS_V: u32 = (DIM_V + 3u) / 4u;
const LOWEST: f32 = -3.4028234663852886e38;

struct Params {
  y_strides: vec4<u32>,
  base: u32,
  queries: u32,
  heads: u32,
  rows: u32,     // queries of all heads
  splits: u32,
  jobs: u32,
}

@compute @workgroup_size(64)
//#include invocation job=job size=64u jobs=jobs
  let d = job % QUADS_V;
  let row = job / QUADS_V;
  var top = LOWEST;
  for (var s = 0u; s < params.splits; s++) {
    top = max(top, load_stats((s * params.rows + row) * 2u));
  }
  let head = row / params.queries;
  let batch = head / params.heads;
  let place = vec3<u32>(batch, head - batch * params.heads, row - head * params.queries);
  var sum = 0.0;
  var x = vec4<f32>();
//#if SINK
  let sink = load_sink(place.y);
  top = max(top, sink);
  sum = exp(sink - top);
//#endif
  for (var s = 0u; s < params.splits; s++) {
    let at = s * params.rows + row;
    let given = load_stats(at * 2u + 1u);
    if (given == 0.0) { continue; }
    let share = exp(load_stats(at * 2u) - top);
    sum += share * given;
//#if VEC
    x += share * load4_parts(at * QUADS_V + d);
//#else
    for (var c = 0u; c < 4u; c++) {
      if (4u * d + c < DIM_V) { x[c] += share * load_parts(at * DIM_V + 4u * d + c); }
    }
//#endif
  }
//#if EMPTY_ZERO
  x *= select(1.0 / sum, 0.0, sum == 0.0);
//#else
  x *= 1.0 / sum;
//#endif
  let base = params.base + dot(place, params.y_strides.xyz);
//#include attention_put
}
