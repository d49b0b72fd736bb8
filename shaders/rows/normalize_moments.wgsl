// stats[row, segment] = (how many, mean, sum of squared distances from it, pivot) of a run of `share` elements of a row:
// the first pass of a normalisation whose rows are longer than one workgroup should read (normalize_spread is the second).
//
// Means are of distances from the row's first element, the pivot, and partial results are combined by Chan, Golub and LeVeque's
// formula (1979): no digits are lost where the mean is large.
//#tensors x -> stats
const WG: u32 = 256u;

struct Params {
  groups: u32,     // workgroups: rows * segments
  length: u32,
  segments: u32,
  share: u32,      // elements of a segment, a multiple of four
}

//#include moments_combined shares=parts

@compute @workgroup_size(WG)
//#include workgroup name=main place=lane
  let job = workgroup_index(wid, nwg);
  if (job >= params.groups) { return; }
  let row = job / params.segments;
  let start = (job - row * params.segments) * params.share;
  let end = min(start + params.share, params.length);
  let base = row * params.length;
//#if VEC
  let pivot = load4_x(base >> 2u)[0];
//#else
  let pivot = load_x(base);
//#endif
  var count = 0.0;
  var sum = 0.0;
  var squares = 0.0;
//#if VEC
  for (var k = start + lane * 4u; k < end; k += WG * 4u) {
    let v = load4_x((base + k) >> 2u) - vec4<f32>(pivot);
    sum += (v[0] + v[1]) + (v[2] + v[3]);
    count += 4.0;
  }
  let center = sum / max(count, 1.0);
  for (var k = start + lane * 4u; k < end; k += WG * 4u) {
    let d = (load4_x((base + k) >> 2u) - vec4<f32>(pivot)) - vec4<f32>(center);
    squares += dot(d, d);
  }
//#else
  for (var k = start + lane; k < end; k += WG) {
    sum += load_x(base + k) - pivot;
    count += 1.0;
  }
  let center = sum / max(count, 1.0);
  for (var k = start + lane; k < end; k += WG) {
    let d = (load_x(base + k) - pivot) - center;
    squares += d * d;
  }
//#endif
//#if SUBGROUP
  let total = reduced_lanes(vec3<f32>(count, center, squares), lane);
//#else
  parts[lane] = vec3<f32>(count, center, squares);
  workgroupBarrier();
  for (var step = WG / 2u; step > 0u; step >>= 1u) {
    if (lane < step) { parts[lane] = combine_moments(parts[lane], parts[lane + step]); }
    workgroupBarrier();
  }
//#endif
  if (lane == 0u) {
//#if !SUBGROUP
    let total = parts[0];
//#endif
    store_stats(job * 4u, total.x);
    store_stats(job * 4u + 1u, total.y);
    store_stats(job * 4u + 2u, total.z);
    store_stats(job * 4u + 3u, pivot);
  }
}
