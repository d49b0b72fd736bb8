// The newest row of queries, keys and values made ready, in vec4s: what attention_few_queries has of prepare_heads.
// TURN, PAIRS, POSITIONS, NORM, PACKED: as attention_append.wgsl; `half` is a multiple of 4, with PAIRS of 2.
// CUT: the caches are float16, and hold what is rounded to it. The newest row is where the one query is: `placed`.

fn as_kept(x: vec4<f32>) -> vec4<f32> {
//#if CUT
  return vec4<f32>(unpack2x16float(pack2x16float(x.xy)), unpack2x16float(pack2x16float(x.zw)));
//#else
  return x;
//#endif
}

//#if PACKED_ROWS
// The coding of `count` vec4s of `new_rows` from `first` on.
fn coding_of(first: u32, count: u32) -> u32 {
  var least = new_rows[first];
  var largest = least;
  for (var i = 1u; i < count; i++) {
    least = min(least, new_rows[first + i]);
    largest = max(largest, new_rows[first + i]);
  }
  return row_coding(min(min(least.x, least.y), min(least.z, least.w)),
                    max(max(largest.x, largest.y), max(largest.z, largest.w)), MOST_CODE);
}

//#endif
// Where the angles of that row's position begin.
fn angles_of(batch: u32, newest: i32) -> u32 {
//#if POSITIONS
  let position = i64_low(load_positions(batch));
//#else
  let position = newest;
//#endif
  return u32(clamp(position, 0, i32(params.angle_rows) - 1)) * params.half;
}

// Vec4 `d` as it is given: of a query (part 0), a key (1), a value (2).
fn raw_quad(part: u32, base: u32, d: u32) -> vec4<f32> {
//#if !PACKED
  if (part == 1u) { return load4_own_key((base >> 2u) + d); }
  if (part == 2u) { return load4_own_value((base >> 2u) + d); }
//#endif
  return quad_q(base, d);
}

//#if NORM
fn weight_quad(part: u32, d: u32) -> vec4<f32> {
  if (part == 0u) { return load4_q_weight(d); }
  return load4_k_weight(d);
}
//#endif

fn normed_quad(part: u32, base: u32, d: u32, factor: f32) -> vec4<f32> {
  let x = raw_quad(part, base, d);
//#if NORM
  if (part < 2u) { return x * factor * weight_quad(part, d); }
//#endif
  return x;
}

fn new_quad(part: u32, base: u32, d: u32, angles: u32) -> vec4<f32> {
  var factor = 1.0;
//#if NORM
  if (part < 2u) {
    var squares = 0.0;
    for (var n = 0u; n < QUADS; n++) {
      let x = raw_quad(part, base, n);
      for (var c = 0u; c < 4u; c++) { squares += x[c] * x[c]; }
    }
    factor = inverseSqrt(squares / f32(DIM) + params.epsilon);
  }
//#endif
  let own = normed_quad(part, base, d, factor);
//#if TURN
  if (part < 2u && 4u * d < 2u * params.half) {
//#if PAIRS
    let at = angles + 2u * d;
    let cosines = vec2<f32>(load_cosines(at), load_cosines(at + 1u)).xxyy;
    let sines = vec2<f32>(load_sines(at), load_sines(at + 1u)).xxyy;
    return cosines * own - vec4<f32>(1.0, -1.0, 1.0, -1.0) * sines * own.yxwz;
//#else
    let quads = params.half / 4u;
    let is_first = d < quads;
    let across = normed_quad(part, base, select(d - quads, d + quads, is_first), factor);
    let at = (angles >> 2u) + select(d - quads, d, is_first);
    return load4_cosines(at) * own - select(-1.0, 1.0, is_first) * load4_sines(at) * across;
//#endif
  }
//#endif
  return own;
}
