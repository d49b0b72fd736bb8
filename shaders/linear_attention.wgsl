// Linear attention: a state S of [keys, values] for every head, updated token by token.
//
//   S = exp(g) * S                                (GATED; g one a head, or BY_KEY one a key component)
//   v = beta * (v - transpose(S) k)               (DELTA)
//   S = S + k (x) v,  y = scale * transpose(S) q  for each of the `group` query heads that share the state
//
// A workgroup takes one head of one batch entry and COLS columns of S, which stay in workgroup memory; every invocation
// owns a column. All its tokens are gone through in turn.
//#tensors query, key, value, past, decay, beta -> y, state
//#variants GATED=1,DELTA=1,PAST=1 | GATED=1,BY_KEY=1 | DELTA=1,DIM=128,COLS=16 query=float16 key=float16 value=float16
const DIM: u32 = 64u;
const COLS: u32 = 32u;

struct Params {
  times: u32,
  heads: u32,
  group: u32,
  size_k: u32,
  size_v: u32,
  blocks: u32,
  groups: u32,
  beta_heads: u32,
  scale: f32,
}

var<workgroup> state_columns: array<f32, DIM * COLS>;

@compute @workgroup_size(COLS)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let job = workgroup_index(wid, nwg);
  if (job >= params.groups) { return; }
  let place = job / params.blocks;
  let b = place / params.heads;
  let h = place - b * params.heads;
  let col = (job - place * params.blocks) * COLS + lane;
  if (col >= params.size_v) { return; }
  let s_base = place * params.size_k * params.size_v + col;

  for (var d = 0u; d < params.size_k; d++) {
//#if PAST
    state_columns[d * COLS + lane] = load_past(s_base + d * params.size_v);
//#else
    state_columns[d * COLS + lane] = 0.0;
//#endif
  }
  for (var t = 0u; t < params.times; t++) {
    let token = b * params.times + t;
    let k_base = (token * params.heads + h) * params.size_k;
    var v = load_value((token * params.heads + h) * params.size_v + col);
//#if GATED
//#if !BY_KEY
    let keep = exp(load_decay(token * params.heads + h));
//#endif
    for (var d = 0u; d < params.size_k; d++) {
//#if BY_KEY
      let keep = exp(load_decay(k_base + d));
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
      var sum = 0.0;
      for (var d = 0u; d < params.size_k; d++) {
        sum += load_query(head * params.size_k + d) * state_columns[d * COLS + lane];
      }
      store_y(head * params.size_v + col, params.scale * sum);
    }
  }
  for (var d = 0u; d < params.size_k; d++) {
    store_state(s_base + d * params.size_v, state_columns[d * COLS + lane]);
  }
}
