// Linear attention: a state S of [keys, values] for every head, updated token by token.
//
//   S = exp(g) * S                                (GATED; g one a head, or BY_KEY one a key component)
//   v = beta * (v - transpose(S) k)               (DELTA)
//   S = S + k (x) v,  y = scale * transpose(S) q  for each of the `group` query heads that share the state
//
// A workgroup takes one head of one batch entry and COLS columns of S, which stay in workgroup memory; every invocation
// owns a column. All its tokens are gone through in turn. Heads of S may share one of the keys, and one of the queries.
// `state` has the states after the last `window` tokens, zeros where there were fewer tokens.
//#tensors query, key, value, past, decay, beta -> y, state
const DIM: u32 = 64u;
const COLS: u32 = 32u;

struct Params {
  times: u32,
  heads: u32,
  group: u32,             // results of a head of S: queries that share it
  queries: u32,           // heads of queries
  query_share: u32,       // heads of S that share one of the queries
  key_heads: u32,
  key_share: u32,
  window: u32,
  slot: u32,              // elements of a state of all heads
  past_base: u32,
  is_window: u32,         // 0: the only slot of no token is the past
  size_k: u32,
  size_v: u32,
  blocks: u32,
  groups: u32,
  beta_heads: u32,
  scale: f32,
}

var<workgroup> state_columns: array<f32, DIM * COLS>;

@compute @workgroup_size(COLS)
//#include numbered_workgroup name=main place=lane number=job count=params.groups
  let place = job / params.blocks;
  let b = place / params.heads;
  let h = place - b * params.heads;
  let col = (job - place * params.blocks) * COLS + lane;
  if (col >= params.size_v) { return; }
  let s_base = place * params.size_k * params.size_v + col;

  for (var d = 0u; d < params.size_k; d++) {
//#if PAST
    state_columns[d * COLS + lane] = load_past(params.past_base + s_base + d * params.size_v);
//#else
    state_columns[d * COLS + lane] = 0.0;
//#endif
  }
  for (var t = 0u; t < params.times; t++) {
    let token = b * params.times + t;
    let k_base = (token * params.key_heads + h / params.key_share) * params.size_k;
    var v = load_value((token * params.heads + h) * params.size_v + col);
//#if GATED
//#if !BY_KEY
    let keep = exp(load_decay(token * params.heads + h));
//#endif
    for (var d = 0u; d < params.size_k; d++) {
//#if BY_KEY
      let keep = exp(load_decay((token * params.heads + h) * params.size_k + d));
//#endif
      state_columns[d * COLS + lane] *= keep;
    }
//#endif
//#if DELTA
    var recalled = 0.0;
    for (var d = 0u; d < params.size_k; d++) {
      recalled += state_columns[d * COLS + lane] * load_key(k_base + d);
    }
    v = load_beta(token * params.beta_heads + h % params.beta_heads) * (v - recalled);
//#endif
    for (var d = 0u; d < params.size_k; d++) {
      state_columns[d * COLS + lane] += load_key(k_base + d) * v;
    }
    for (var g = 0u; g < params.group; g++) {
      let head = token * params.heads * params.group + h * params.group + g;
      let q_base = (token * params.queries + (h * params.group + g) / params.query_share) * params.size_k;
      var sum = 0.0;
      for (var d = 0u; d < params.size_k; d++) {
        sum += load_query(q_base + d) * state_columns[d * COLS + lane];
      }
      store_y(head * params.size_v + col, params.scale * sum);
    }
    if (t + params.window >= params.times) {
      let at = (t + params.window - params.times) * params.slot + s_base;
      for (var d = 0u; d < params.size_k; d++) {
        store_state(at + d * params.size_v, state_columns[d * COLS + lane]);
      }
    }
  }
  for (var n = params.times; n < params.window; n++) {
    let at = (n - params.times) * params.slot + s_base;
    for (var d = 0u; d < params.size_k; d++) {
      store_state(at + d * params.size_v, select(0.0, state_columns[d * COLS + lane], params.is_window == 0u));
    }
  }
}
