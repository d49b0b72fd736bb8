// y = finish((x - mean) / (sqrt(var + epsilon) + floor) [* scale + bias]), from the moments of every row's segments, whose
// means are of distances from a pivot (normalize_moments).
//
// A workgroup combines the moments of a row and writes a chunk of it. AFFINE: scale and bias are one an `inner` elements (a
// channel), or one a row's group. VEC: rows, and channels where they matter, are whole vec4s.
//#tensors x, stats, scale, bias -> y
const WG: u32 = 256u;

alias ACC = f32;

struct Params {
  groups: u32,     // workgroups: rows * chunks
  length: u32,
  segments: u32,   // at most WG
  chunks: u32,     // of a row
  chunk: u32,      // elements, a multiple of four
  inner: u32,
  rows: u32,       // an image
  per_group: u32,  // 1: scale and bias are one a group
  epsilon: f32,
  floor: f32,
}

//#include moments_combined shares=parts reduced=reduced_for_all

fn finish(value: ACC, channel: u32, index: u32) -> ACC { return value; }

@compute @workgroup_size(WG)
//#include numbered_workgroup name=main place=lane number=job count=params.groups
  let row = job / params.chunks;
  let start = (job - row * params.chunks) * params.chunk;
  let end = min(start + params.chunk, params.length);
  let base = row * params.length;
  var mine = vec3<f32>();
  if (lane < params.segments) {
    let at = (row * params.segments + lane) * 4u;
    mine = vec3<f32>(load_stats(at), load_stats(at + 1u), load_stats(at + 2u));
  }
  let total = combined(mine, lane);
  let pivot = load_stats(row * params.segments * 4u + 3u);
  let center = total.y;
  let factor = 1.0 / (sqrt(total.z / f32(params.length) + params.epsilon) + params.floor);
  let group = row % params.rows;
//#if VEC
  for (var k = start + lane * 4u; k < end; k += WG * 4u) {
    let channel = group * (params.length / params.inner) + k / params.inner;
    var v = ((load4_x((base + k) >> 2u) - vec4<f32>(pivot)) - vec4<f32>(center)) * factor;
//#include affine_stored
  }
//#else
  for (var k = start + lane; k < end; k += WG) {
    let channel = group * (params.length / params.inner) + k / params.inner;
    var v = ((load_x(base + k) - pivot) - center) * factor;
//#if AFFINE
    let which = select(channel, group, params.per_group == 1u);
    v = v * load_scale(which) + load_bias(which);
//#endif
    store_y(base + k, finish(v, channel, base + k));
  }
//#endif
}
