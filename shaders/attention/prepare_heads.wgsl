// Rows of up to three tensors made ready for attention: normalised, turned, and set after the rows of a cache.
//
//   fresh_p[b, h, s] = turn(norm(x_p[b, h, s])), each where part p has it
//   y_p[b, h, t]     = fresh_p[b, h, t - first_p] where that row is among the new ones, else past_p[b, h, t]
//                      (INTO: new rows alone are written, the others are there already)
//
// x_p is a strided view (batch, head, position, component), past_p and y_p are contiguous. norm: x / sqrt(mean(x^2) +
// epsilon) * weight_p over the components of a head. turn: the first 2 * half components turn (Su et al., 2021): pairs are
// (c, c + half), with PAIRS (2c, 2c + 1); tables of cosines and sines are strided views too, with a column for every
// component, or (SHARED_COLUMNS) for every pair. TURNED and NORMED: the parts that do, as bits.
//
// LENGTHS: each batch entry has its own number of rows before the new ones, `lengths` less these, 0 where the number `prompt`
// is that of the queries (PROMPT). It counts for the parts in PLACED; rows after the new ones are those of past, or 0. The
// tables then have a row for each position: that of the row, or what `positions` says (POSITIONS).
//
// A workgroup has 64 / lanes rows of one part, four components an invocation; the sum of squares meets in workgroup
// memory (REDUCED), or each invocation makes its own.
//#tensors x0, x1, x2, cosines, sines, positions, weight0, weight1, weight2, past0, past1, past2, lengths, prompt -> y0, y1, y2
const TURNED: u32 = 0u;
const NORMED: u32 = 0u;
//#if LENGTHS
const PLACED: u32 = 0u;
//#endif

struct Params {
  strides_0: vec4<u32>,
  strides_1: vec4<u32>,
  strides_2: vec4<u32>,
  angles_0: vec4<u32>,    // strides in the tables
  angles_1: vec4<u32>,
  angles_2: vec4<u32>,
  sizes_0: vec4<u32>,     // heads, new rows of a head, rows of a head in y, invocations a row
  sizes_1: vec4<u32>,
  sizes_2: vec4<u32>,
  place_0: vec4<u32>,     // base in x, rows before the new ones, rows to make in all, workgroups of earlier parts
  place_1: vec4<u32>,
  place_2: vec4<u32>,
  half: u32,
  epsilon: f32,
//#if LENGTHS
  angle_rows: u32,
  queries: i32,
  lacking: i32,           // what is to be added to lengths
//#endif
}

//#if REDUCED
var<workgroup> partial: array<f32, 64>;
//#endif

fn raw(part: u32, at: u32) -> f32 {
//#if OWN1
  if (part == 1u) { return load_x1(at); }
//#endif
//#if OWN2
  if (part == 2u) { return load_x2(at); }
//#endif
  return load_x0(at);
}

struct Row {
  part: u32,
  base: u32,      // component 0 in x
  step: u32,
  angles: u32,    // column 0 in the tables
  column: u32,    // from one column to the next
  factor: f32,
}

//#if LENGTHS
// Rows before the new ones.
fn first_of(batch: u32, rows: u32) -> i32 {
//#if PROMPT
  if (load_prompt(0u) == params.queries) { return 0; }
//#endif
  return load_lengths(batch) + params.lacking - i32(rows);
}

//#if TURN
// Where the tables have the angles of new row `s` of `rows`.
fn angles_of(batch: u32, s: u32, rows: u32) -> u32 {
//#if POSITIONS
  let position = i64_low(load_positions(batch * rows + s));
//#else
  let position = first_of(batch, rows) + i32(s);
//#endif
  return u32(clamp(position, 0, i32(params.angle_rows) - 1)) * params.half;
}

//#endif
//#endif
fn normed(row: Row, c: u32) -> f32 {
  let x = raw(row.part, row.base + c * row.step);
//#if NORM0
  if (row.part == 0u) { return x * row.factor * load_weight0(c); }
//#endif
//#if NORM1
  if (row.part == 1u) { return x * row.factor * load_weight1(c); }
//#endif
//#if NORM2
  if (row.part == 2u) { return x * row.factor * load_weight2(c); }
//#endif
  return x;
}

fn fresh(row: Row, c: u32) -> f32 {
  let own = normed(row, c);
//#if TURN
  if (((TURNED >> row.part) & 1u) == 1u && c < 2u * params.half) {
//#include partner_of_turn
//#if SHARED_COLUMNS
    let angle = row.angles + j * row.column;
//#else
    let angle = row.angles + c * row.column;
//#endif
    return own * load_cosines(angle) + select(across, -across, is_first) * load_sines(angle);
  }
//#endif
  return own;
}

fn put(part: u32, at: u32, v: vec4<f32>) {
//#if PART1
  if (part == 1u) {
    store4_y1(at, v.x, v.y, v.z, v.w);
    return;
  }
//#endif
//#if PART2
  if (part == 2u) {
    store4_y2(at, v.x, v.y, v.z, v.w);
    return;
  }
//#endif
  store4_y0(at, v.x, v.y, v.z, v.w);
}

fn kept(part: u32, at: u32) -> vec4<f32> {
//#if PAST0
  if (part == 0u) { return load4_past0(at); }
//#endif
//#if PAST1
  if (part == 1u) { return load4_past1(at); }
//#endif
//#if PAST2
  if (part == 2u) { return load4_past2(at); }
//#endif
  return vec4<f32>();
}

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
  @builtin(num_workgroups) nwg: vec3<u32>,
) {
  let group = workgroup_index(wid, nwg);
  var part = 0u;
  var strides = params.strides_0;
  var angles = params.angles_0;
  var sizes = params.sizes_0;
  var place = params.place_0;
//#if PART1
  if (group >= params.place_1.w) {
    part = 1u;
    strides = params.strides_1;
    angles = params.angles_1;
    sizes = params.sizes_1;
    place = params.place_1;
  }
//#endif
//#if PART2
  if (group >= params.place_2.w) {
    part = 2u;
    strides = params.strides_2;
    angles = params.angles_2;
    sizes = params.sizes_2;
    place = params.place_2;
  }
//#endif
  let lanes = sizes.w;
  let slot = local / lanes;
  let lane = local - slot * lanes;
  let job = (group - place.w) * (64u / lanes) + slot;
  let is_there = slot < 64u / lanes && job < place.z;
//#if INTO
  let made = max(sizes.y, 1u);
//#else
  let made = max(sizes.z, 1u);
//#endif
  let whole = job / made;
  let r = job - whole * made;
  let batch = whole / sizes.x;
  let head = whole - batch * sizes.x;
//#if LENGTHS
  let first = select(0, first_of(batch, sizes.y), ((PLACED >> part) & 1u) == 1u);
//#if INTO
  let s = r;
  let t = u32(first + i32(r));
  let is_new = is_there && t < sizes.z;
//#else
  let s = u32(i32(r) - first);
  let t = r;
  let is_new = is_there && s < sizes.y;
//#endif
//#elif INTO
  let is_new = is_there;
  let s = r;
  let t = place.y + r;
//#else
  let is_new = is_there && r >= place.y;
  let s = r - place.y;
  let t = r;
//#endif
  // Where nothing is new s may be below 0: read nothing outside of the tensors, which drivers answer in their own ways.
  let here = vec3<u32>(batch, head, select(0u, s, is_new));
  var row = Row(part, place.x + dot(here, strides.xyz), strides.w, dot(here, angles.xyz), angles.w, 1.0);
//#if LENGTHS
//#if TURN
  row.angles = angles_of(batch, here.z, sizes.y);
//#endif
//#endif
//#if NORM
  let is_normed = is_new && ((NORMED >> part) & 1u) == 1u;
  var squares = 0.0;
//#if REDUCED
  if (is_normed) {
    for (var n = 0u; n < 4u; n++) {
      let x = raw(part, row.base + (4u * lane + n) * row.step);
      squares += x * x;
    }
  }
  partial[local] = squares;
  workgroupBarrier();
  if (is_normed) {
    squares = 0.0;
    for (var n = 0u; n < lanes; n++) { squares += partial[local - lane + n]; }
  }
//#else
  if (is_normed) {
    for (var c = 0u; c < 4u * lanes; c++) {
      let x = raw(part, row.base + c * row.step);
      squares += x * x;
    }
  }
//#endif
  row.factor = inverseSqrt(squares / f32(4u * lanes) + params.epsilon);
//#endif
  if (!is_there) { return; }
  let at = (whole * sizes.z + t) * lanes + lane;
  if (!is_new) {
//#if LENGTHS
//#if !INTO
    put(part, at, select(vec4<f32>(), kept(part, (whole * place.y + r) * lanes + lane), r < place.y));
//#endif
//#else
    put(part, at, kept(part, (whole * place.y + r) * lanes + lane));
//#endif
    return;
  }
  let c = 4u * lane;
  put(part, at, vec4<f32>(fresh(row, c), fresh(row, c + 1u), fresh(row, c + 2u), fresh(row, c + 3u)));
}
