// New rows of keys (part 0) and values (part 1) set into caches of packed rows (`lib/packed_rows.wgsl`).
//
//   y_p[b, h, t] = packed(x_p[b, h, t - first[b]]) where that row is among the new ones, else past_p[b, h, t] where there is
//                  one, else 0 (INTO: new rows alone are written, the others are there already)
//
// x_p is a strided view (batch, head, position, component) with contiguous components, past_p and y_p are contiguous.
// first: with LENGTHS the keys of a batch entry less the new rows, 0 where the number `prompt` is that of the queries
// (PROMPT). NIBBLES: codes have 4 bits, not 8.
//
// A workgroup makes ROWS rows, each by LANES invocations.
//#tensors x0, x1, past0, past1, lengths, prompt -> y0, y1
const SIZE: u32 = 64u;

const LANES: u32 = 16u;
const ROWS: u32 = 64u / LANES;
const QUADS: u32 = SIZE / 4u;
//#include packed_row_sizes
const WORDS: u32 = QUADS / WORD_QUADS;

struct Params {
  strides_0: vec4<u32>,
  strides_1: vec4<u32>,
  base_0: u32,
  base_1: u32,
  heads: u32,
  rows: u32,              // new rows of a head
  length: u32,            // rows of a head in y
  past_rows: u32,         // rows of a head in past
  lacking: i32,
  queries: i32,
  part_jobs: u32,         // rows of each part
  jobs: u32,
}

var<workgroup> extremes: array<vec2<f32>, 64>;

//#include first_row first=0

fn given(part: u32, base: u32, d: u32) -> vec4<f32> {
  if (part == 1u) { return load4_x1((base >> 2u) + d); }
  return load4_x0((base >> 2u) + d);
}

fn put(part: u32, at: u32, word: u32) {
  if (part == 1u) {
    store4_y1(at, word, word >> 8u, word >> 16u, word >> 24u);
  } else {
    store4_y0(at, word, word >> 8u, word >> 16u, word >> 24u);
  }
}

fn kept(part: u32, at: u32) -> u32 {
//#if PAST
  if (part == 1u) { return past1[at]; }
  return past0[at];
//#else
  return 0u;
//#endif
}

@compute @workgroup_size(64)
//#include workgroup name=main place=local
  let slot = local / LANES;
  let lane = local % LANES;
  let job = workgroup_index(wid, nwg) * ROWS + slot;
  let part = select(0u, 1u, job >= params.part_jobs);
  let place = job - part * params.part_jobs;
//#if INTO
  let made = max(params.rows, 1u);
//#else
  let made = max(params.length, 1u);
//#endif
  let whole = place / made;
  let r = i32(place - whole * made);
  let batch = whole / params.heads;
  let head = whole - batch * params.heads;
  let is_there = job < params.jobs;
  var first = 0;
  if (is_there) { first = first_of(batch); }
//#if INTO
  let s = r;
  let t = first + r;
  let is_new = is_there && t >= 0 && t < i32(params.length);
//#else
  let s = r - first;
  let t = r;
  let is_new = is_there && s >= 0 && s < i32(params.rows);
//#endif
  var base = select(params.base_0, params.base_1, part == 1u);
  base += dot(vec3<u32>(batch, head, u32(max(s, 0))), select(params.strides_0, params.strides_1, part == 1u).xyz);
  var ends = vec2<f32>();
  if (is_new) {
    var least = given(part, base, min(lane, QUADS - 1u));
    var largest = least;
    for (var d = lane + LANES; d < QUADS; d += LANES) {
      let x = given(part, base, d);
      least = min(least, x);
      largest = max(largest, x);
    }
    ends = vec2<f32>(min(min(least.x, least.y), min(least.z, least.w)),
                     max(max(largest.x, largest.y), max(largest.z, largest.w)));
  }
  extremes[local] = ends;
  workgroupBarrier();
  if (!is_there) { return; }
  let at = (whole * params.length + u32(max(t, 0))) * (WORDS + 1u);
  if (is_new) {
    for (var n = 0u; n < LANES; n++) {
      let other = extremes[slot * LANES + n];
      ends = vec2<f32>(min(ends.x, other.x), max(ends.y, other.y));
    }
    let coding = row_coding(ends.x, ends.y, MOST_CODE);
    for (var w = lane; w < WORDS; w += LANES) {
      var word = 0u;
      for (var n = 0u; n < WORD_QUADS; n++) {
        word |= dot(row_codes(given(part, base, w * WORD_QUADS + n), coding, MOST_CODE), PLACES) << (16u * n);
      }
      put(part, at + w, word);
    }
    if (lane == 0u) { put(part, at + WORDS, coding); }
    return;
  }
//#if !INTO
  let source = (whole * params.past_rows + u32(t)) * (WORDS + 1u);
  for (var w = lane; w <= WORDS; w += LANES) {
    var word = 0u;
    if (u32(t) < params.past_rows) { word = kept(part, source + w); }
    put(part, at + w, word);
  }
//#endif
}
