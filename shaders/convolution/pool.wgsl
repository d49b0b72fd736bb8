// Pooling: y[n, c, o] = the maximum, the mean or the p-norm of x[n, c, i] over i = o * stride - pad + k * dilation.
//
// Padding does not count: it is below every maximum and adds nothing to sums. Means divide by the inputs seen, or with
// COUNT_PADDING by the places within the padded input. One invocation makes four neighbouring outputs.
//   INDICES  also the flat index of the maximum, the first of equals; NaN is greater than any number
//   WIDE     only the positions that see the input are visited: windows may be far larger than it
//#tensors x -> y, indices
//#type T = y
//#include kernel_sizes

struct Params {
  input: vec4<u32>,      // depth, height, width; their product
  output: vec4<u32>,     // depth, height, width; their product
  strides: vec4<i32>,
  dilations: vec4<i32>,
  pads: vec4<i32>,
  reach: vec4<u32>,      // extent of the padded input
  places: vec4<u32>,     // what depth, height and width add to an index
  size: u32,             // elements of y
  lowest: u32,           // bits of the least T
  p: f32,                // of the norm
}

//#if WIDE
// The first position of a window that starts at `start` that sees the input along one axis.
fn first_position(start: i32, axis: u32) -> u32 {
  return u32((max(-start, 0) + params.dilations[axis] - 1) / params.dilations[axis]);
}

// How many positions there are before `end`, where the first is at `start`.
fn positions_before(end: u32, start: i32, positions: u32, axis: u32) -> u32 {
  return min(positions, u32(max(i32(end) - start + params.dilations[axis] - 1, 0) / params.dilations[axis]));
}
//#endif

// True where position k, of a window that starts at `start`, sees the input along one axis.
fn inside(start: i32, k: u32, axis: u32) -> bool {
  return u32(start + i32(k) * params.dilations[axis]) < params.input[axis];
}

// True where it lies within the padded input.
fn counted(start: i32, k: u32, axis: u32) -> bool {
  return u32(start + params.pads[axis] + i32(k) * params.dilations[axis]) < params.reach[axis];
}

fn greater(v: T, best: T) -> bool {
//#if FLOAT
  return (is_nan(v) && !is_nan(best)) || (v > best && !is_nan(best));
//#else
  return v > best;
//#endif
}

fn element(i: u32) -> T {
  let map = i / params.output.w;
  let line = i / params.output.z;
  let d0 = i32((line / params.output.y) % params.output.x) * params.strides.x - params.pads.x;
  let h0 = i32(line % params.output.y) * params.strides.y - params.pads.y;
  let w0 = i32(i % params.output.z) * params.strides.z - params.pads.z;
  var acc = T();
  var count = 0u;
  var found = 0xffffffffu;
//#if MAXIMUM
  acc = bitcast<T>(params.lowest);
//#endif
//#if WIDE
  let starts = vec3<i32>(d0, h0, w0);
  let first = vec3<u32>(first_position(d0, 0u), first_position(h0, 1u), first_position(w0, 2u));
  let end = vec3<u32>(positions_before(params.input.x, d0, KD, 0u), positions_before(params.input.y, h0, KH, 1u),
    positions_before(params.input.z, w0, KW, 2u));
//#if COUNT_PADDING
  let padded = starts + params.pads.xyz;
  count = positions_before(params.reach.x, padded.x, KD, 0u) * positions_before(params.reach.y, padded.y, KH, 1u)
    * positions_before(params.reach.z, padded.z, KW, 2u);
//#endif
//#else
  let first = vec3<u32>(0u);
  let end = vec3<u32>(KD, KH, KW);
//#endif
  for (var kd = first.x; kd < end.x; kd++) {
    let d_in = inside(d0, kd, 0u);
    for (var kh = first.y; kh < end.y; kh++) {
      let h_in = d_in && inside(h0, kh, 1u);
      let line = (map * params.input.x + u32(d0 + i32(kd) * params.dilations.x)) * params.input.y
        + u32(h0 + i32(kh) * params.dilations.y);
      for (var kw = first.z; kw < end.z; kw++) {
        let w = u32(w0 + i32(kw) * params.dilations.z);
//#if COUNT_PADDING
//#if !WIDE
        count += u32(counted(d0, kd, 0u) && counted(h0, kh, 1u) && counted(w0, kw, 2u));
//#endif
//#endif
        if (!(h_in && w < params.input.z)) { continue; }
        let v = load_x(line * params.input.z + w);
//#if MAXIMUM
        if (count == 0u || greater(v, acc)) {
          acc = v;
//#if INDICES
          let at = vec3<u32>(vec3<i32>(d0, h0, w0) + vec3<i32>(vec3<u32>(kd, kh, kw)) * params.dilations.xyz);
          found = at.x * params.places.x + at.y * params.places.y + at.z * params.places.z;
//#endif
        }
        count = 1u;
//#endif
//#if MEAN
        acc += v;
//#if !COUNT_PADDING
        count += 1u;
//#endif
//#endif
//#if NORM
        if (v != 0.0) { acc += pow(abs(v), params.p); }
//#endif
      }
    }
  }
//#if INDICES
  if (i < params.size) {
    let at = vec2<u32>(map * params.input.w + found, 0u);
    store_indices(i, select(at, vec2<u32>(0xffffffffu), found == 0xffffffffu));
  }
//#endif
//#if MEAN
  acc = acc / f32(max(count, 1u));
//#endif
//#if NORM
  if (acc != 0.0) { acc = pow(acc, 1.0 / params.p); }
//#endif
  return acc;
}

@compute @workgroup_size(64)
//#include invocation_of_four
  var v = vec4<T>();
  for (var k = 0u; k < 4u; k++) { v[k] = element(i[k]); } // one copy of the code: software adapters compile it slowly
  store4_y(g, v.x, v.y, v.z, v.w);
}
