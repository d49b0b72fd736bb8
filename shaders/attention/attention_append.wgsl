// Rows of queries, keys or values made ready: normalised, turned, and set into a cache.
//
//   fresh[b, h, s] = turn(norm(x[b, h, s] + bias[h]), angles of position first[b] + s)
//   y[b, h, t] = fresh[b, h, t - first[b]] where that row is among the new ones (without PLACED: fresh[b, h, t]),
//                else past[b, h, t] where there is one, else 0 (INTO: what it was; no other row is touched)
//
// x is a strided view (batch, head, position, component), past and y are contiguous. NORM: x / sqrt(mean(x^2) + epsilon)
// * weight over the components of a head. TURN: the first 2 * half components turn (Su et al., 2021): pairs are (c, c +
// half), with PAIRS (2c, 2c + 1); angles are rows of the caches at the position, or at `positions` with POSITIONS.
// first: with LENGTHS the keys of a batch entry less the new rows, 0 where the number `prompt` is that of the queries
// (PROMPT); else the same for all. QUANTISED: y and past are int8, or (BITS 4) pairs of 4 bits, low first, plus 8; scale
// is one number or (CHANNELS) one for every component of a head.
//
// An invocation makes four components, of 4 bits eight; where one row ends the next begins.
//#tensors x, past, bias, cosines, sines, positions, weight, lengths, prompt, scale -> y
const BITS: u32 = 8u;

struct Params {
  strides: vec4<u32>,     // of x
  base: u32,
  heads: u32,
  rows: u32,              // new rows of a head
  length: u32,            // rows of a head in y
  past_heads: u32,        // heads of past before the first
  past_rows: u32,             // rows of a head in past
  size: u32,              // components of a head
  half: u32,
  angle_rows: u32,        // rows of the caches of angles
  first: i32,
  head_bias: u32,         // where the components of head 0 are in bias
  lacking: i32,
  queries: i32,
  groups: u32,            // invocations a row
  jobs: u32,
  epsilon: f32,
}

//#include first_row first=params.first

struct Fresh {
  base: u32,      // component 0 in x
  shift: u32,     // and in the bias
  angles: u32,    // its row in the caches of angles
  factor: f32,
}

fn given(row: Fresh, c: u32) -> f32 {
//#if BIAS
  return load_x(row.base + c * params.strides.w) + load_bias(row.shift + c);
//#else
  return load_x(row.base + c * params.strides.w);
//#endif
}

fn fresh_row(batch: u32, head: u32, s: u32) -> Fresh {
  var row = Fresh(params.base + dot(vec3<u32>(batch, head, s), params.strides.xyz), params.head_bias + head * params.size,
                  0u, 1.0);
//#if NORM
  var squares = 0.0;
  for (var c = 0u; c < params.size; c++) {
    let x = given(row, c);
    squares += x * x;
  }
  row.factor = inverseSqrt(squares / f32(params.size) + params.epsilon);
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

fn normed(row: Fresh, c: u32) -> f32 {
  let x = given(row, c);
//#if NORM
  return x * row.factor * load_weight(c);
//#else
  return x;
//#endif
}

fn fresh(row: Fresh, c: u32) -> f32 {
  let own = normed(row, c);
//#if TURN
  if (c < 2u * params.half) {
//#include partner_of_turn
    return load_cosines(row.angles + j) * own - select(-1.0, 1.0, is_first) * load_sines(row.angles + j) * across;
  }
//#endif
  return own;
}

//#if QUANTISED
fn quantised(row: Fresh, head: u32, c: u32) -> i32 {
//#if CHANNELS
  let scale = load_scale(head * params.size + c);
//#else
  let scale = load_scale(0u);
//#endif
  let limit = f32(1u << (BITS - 1u));
  return i32(clamp(round(fresh(row, c) / scale), -limit, limit - 1.0));
}

//#if NIBBLES
fn nibbles(row: Fresh, head: u32, c: u32) -> u32 {
  return u32(quantised(row, head, c) + 8) | (u32(quantised(row, head, c + 1u) + 8) << 4u);
}
//#endif
//#endif

@compute @workgroup_size(64)
//#include invocation job=job size=64u jobs=jobs
  let row_of_job = job / params.groups;
  let quad = job - row_of_job * params.groups;
//#if INTO
  let whole_head = row_of_job / params.rows;
  let batch = whole_head / params.heads;
  let s = i32(row_of_job - whole_head * params.rows);
  let t = first_of(batch) + s;
  if (t < 0 || t >= i32(params.length)) { return; }
  let place = whole_head * params.length + u32(t);
//#else
  let place = row_of_job;
  let whole_head = place / params.length;
  let t = place - whole_head * params.length;
  let batch = whole_head / params.heads;
//#if PLACED
  let s = i32(t) - first_of(batch);
//#else
  let s = i32(t);
//#endif
//#endif
  let at = place * params.groups + quad;
  let head = whole_head - batch * params.heads;
  if (s >= 0 && s < i32(params.rows)) {
    let row = fresh_row(batch, head, u32(s));
//#if QUANTISED
//#if NIBBLES
    let c = 8u * quad;
    store4_y(at, nibbles(row, head, c), nibbles(row, head, c + 2u), nibbles(row, head, c + 4u),
             nibbles(row, head, c + 6u));
//#else
    let c = 4u * quad;
    store4_y(at, quantised(row, head, c), quantised(row, head, c + 1u), quantised(row, head, c + 2u),
             quantised(row, head, c + 3u));
//#endif
//#else
    let c = 4u * quad;
//#if ODD
    for (var n = 0u; n < 4u; n++) {
      if (c + n < params.size) { store_y(place * params.size + c + n, fresh(row, c + n)); }
    }
//#else
    store4_y(at, fresh(row, c), fresh(row, c + 1u), fresh(row, c + 2u), fresh(row, c + 3u));
//#endif
//#endif
    return;
  }
//#if !INTO
//#if PLACED
//#if ODD
  for (var n = 0u; n < 4u; n++) {
    let c = 4u * quad + n;
    if (c >= params.size) { break; }
    var kept = 0.0;
//#if PAST
    if (t < params.past_rows) { kept = load_past(((params.past_heads + whole_head) * params.past_rows + t) * params.size + c); }
//#endif
    store_y(place * params.size + c, kept);
  }
//#else
//#if PAST
  if (t < params.past_rows) {
    let kept = load4_past(((params.past_heads + whole_head) * params.past_rows + t) * params.groups + quad);
    store4_y(at, kept.x, kept.y, kept.z, kept.w);
    return;
  }
//#endif
//#if QUANTISED
//#if NIBBLES
  store4_y(at, 0u, 0u, 0u, 0u);
//#else
  store4_y(at, 0i, 0i, 0i, 0i);
//#endif
//#else
  store4_y(at, 0.0, 0.0, 0.0, 0.0);
//#endif
//#endif
//#endif
//#endif
}
