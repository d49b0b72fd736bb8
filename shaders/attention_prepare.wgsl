// What few queries need before attention, in one dispatch: queries turned, keys turned and set into their cache, and with
// VALUES values set into theirs. As `attention_append.wgsl`, of which this is the common case: rows of whole vec4s of the
// same head size, plain caches.
//
//   ready[b, h, s]   = turn(norm(query[b, h, s]), angles of position first[b] + s)
//   y_key[b, g, t]   = turn(norm(key[b, g, t - first[b]])) where that row is among the new ones, else past_key[b, g, t], or 0
//   y_value[b, g, t] = value[b, g, t - first[b]] likewise; with INTO other rows stay what they were
//
// query, key and value are strided views (batch, head, position, component), with PACKED of one tensor.
//#tensors query, key, value, past_key, past_value, cosines, sines, positions, q_weight, k_weight, lengths, prompt -> ready, y_key, y_value

struct Params {
  q_strides: vec4<u32>,
  k_strides: vec4<u32>,
  v_strides: vec4<u32>,
  bases: vec4<u32>,       // of query, key and value
  q_jobs: u32,
  k_jobs: u32,
  jobs: u32,
  rows: u32,              // new rows of a head
  length: u32,            // rows of a head in the caches made
  past_rows: u32,
  heads: u32,
  kv_heads: u32,
  size: u32,
  half: u32,
  angle_rows: u32,
  queries: i32,
  lacking: i32,
  epsilon: f32,
}

fn first_of(batch: u32) -> i32 {
//#if PROMPT
  if (load_prompt(0u) == params.queries) { return 0; }
//#endif
  return load_lengths(batch) + params.lacking - i32(params.rows);
}

fn raw(part: u32, at: u32) -> f32 {
//#if PACKED
  return load_query(at);
//#else
//#if VALUES
  if (part == 2u) { return load_value(at); }
//#endif
  if (part == 1u) { return load_key(at); }
  return load_query(at);
//#endif
}

struct Row {
  base: u32,
  step: u32,
  angles: u32,
  factor: f32,
}

fn row_of(part: u32, batch: u32, head: u32, s: u32) -> Row {
  var strides = params.q_strides;
  var base = params.bases.x;
  if (part == 1u) { strides = params.k_strides; base = params.bases.y; }
//#if VALUES
  if (part == 2u) { strides = params.v_strides; base = params.bases.z; }
//#endif
  var row = Row(base + dot(vec3<u32>(batch, head, s), strides.xyz), strides.w, 0u, 1.0);
//#if NORM
  if (part < 2u) {
    var squares = 0.0;
    for (var c = 0u; c < params.size; c++) {
      let x = raw(part, row.base + c * row.step);
      squares += x * x;
    }
    row.factor = inverseSqrt(squares / f32(params.size) + params.epsilon);
  }
//#endif
//#if TURN
//#if POSITIONS
  let position = i64_low(load_positions(batch * params.rows + s));
//#else
  let position = first_of(batch) + i32(s);
//#endif
  row.angles = u32(clamp(position, 0, i32(params.angle_rows) - 1)) * params.half;
//#endif
  return row;
}

fn normed(part: u32, row: Row, c: u32) -> f32 {
  let x = raw(part, row.base + c * row.step);
//#if NORM
  if (part == 0u) { return x * row.factor * load_q_weight(c); }
  if (part == 1u) { return x * row.factor * load_k_weight(c); }
//#endif
  return x;
}

fn fresh(part: u32, row: Row, c: u32) -> f32 {
  let own = normed(part, row, c);
//#if TURN
  if (part < 2u && c < 2u * params.half) {
//#if PAIRS
    let j = c / 2u;
    let one = (c & 1u) == 0u;
    let across = normed(part, row, c ^ 1u);
//#else
    let one = c < params.half;
    let j = select(c - params.half, c, one);
    let across = normed(part, row, select(c - params.half, c + params.half, one));
//#endif
    return load_cosines(row.angles + j) * own - select(-1.0, 1.0, one) * load_sines(row.angles + j) * across;
  }
//#endif
  return own;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let all = global_index(gid, nwg, 64u);
  if (all >= params.jobs) { return; }
  let quads = params.size / 4u;
  if (all < params.q_jobs) {
    let place = all / quads;
    let c = (all - place * quads) * 4u;
    let whole = place / params.rows;
    let row = row_of(0u, whole / params.heads, whole % params.heads, place % params.rows);
    store4_ready(all, fresh(0u, row, c), fresh(0u, row, c + 1u), fresh(0u, row, c + 2u), fresh(0u, row, c + 3u));
    return;
  }
  var part = 1u;
  var job = all - params.q_jobs;
//#if VALUES
  if (job >= params.k_jobs) {
    part = 2u;
    job -= params.k_jobs;
  }
//#endif
  let place = job / quads;
  let quad = job - place * quads;
//#if INTO
  let whole = place / params.rows;
  let batch = whole / params.kv_heads;
  let s = i32(place - whole * params.rows);
  let t = first_of(batch) + s;
  if (t < 0 || t >= i32(params.length)) { return; }
  job = (whole * params.length + u32(t)) * quads + quad;
//#else
  let whole = place / params.length;
  let t = place - whole * params.length;
  let batch = whole / params.kv_heads;
  let s = i32(t) - first_of(batch);
//#endif
  var v = vec4<f32>();
  if (s >= 0 && s < i32(params.rows)) {
    let row = row_of(part, batch, whole % params.kv_heads, u32(s));
    let c = quad * 4u;
    v = vec4<f32>(fresh(part, row, c), fresh(part, row, c + 1u), fresh(part, row, c + 2u), fresh(part, row, c + 3u));
  } else {
//#if PAST
    if (t < params.past_rows) {
      let at = (whole * params.past_rows + t) * quads + quad;
//#if VALUES
      if (part == 2u) {
        let kept = load4_past_value(at);
        store4_y_value(job, kept.x, kept.y, kept.z, kept.w);
        return;
      }
//#endif
      let kept = load4_past_key(at);
      v = vec4<f32>(kept.x, kept.y, kept.z, kept.w);
    }
//#endif
  }
//#if VALUES
  if (part == 2u) {
    store4_y_value(job, v.x, v.y, v.z, v.w);
    return;
  }
//#endif
  store4_y_key(job, v.x, v.y, v.z, v.w);
}
