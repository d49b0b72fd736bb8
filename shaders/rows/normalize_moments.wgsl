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

//#include moments_combined shares=parts reduced=reduced_lanes

@compute @workgroup_size(WG)
//#include numbered_workgroup name=main place=lane number=job count=params.groups
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
  let total = combined(vec3<f32>(count, center, squares), lane);
  if (lane == 0u) {
    store_stats(job * 4u, total.x);
    store_stats(job * 4u + 1u, total.y);
    store_stats(job * 4u + 2u, total.z);
    store_stats(job * 4u + 3u, pivot);
  }
}
