// y[n, c, o] = x[n, c] sampled at the place grid[n, o] names, each coordinate -1 .. 1 over the input's extent.
//
// Axes are depth, height, width, the last RANK of them real; grid lists them innermost first. TERMS inputs an axis:
// 1 the nearest (ties to even), 2 linear, 4 cubic with a = -0.75. One invocation makes four neighbouring outputs.
//#tensors x, grid -> y
//#type T = y
const RANK: u32 = 2u;
const TERMS: u32 = 2u;

const FAR: f32 = 1e9;

struct Params {
  input: vec4<u32>,     // depth, height, width; their product
  pixels: u32,          // outputs of a channel
  channels: u32,
  size: u32,            // elements of y
  lowest: f32,          // of an integer type
  highest: f32,
}

// The input's edge along an axis, as a coordinate: pixels' centres with ALIGN, else their outer borders.
fn edges(extent: u32) -> vec2<f32> {
//#if ALIGN
  return vec2<f32>(0.0, f32(extent) - 1.0);
//#else
  return vec2<f32>(-0.5, f32(extent) - 0.5);
//#endif
}

fn reflect_into(v: f32, edge: vec2<f32>) -> f32 {
  let range = edge.y - edge.x;
  if (range <= 0.0) { return edge.x; }
  if (v >= edge.x && v <= edge.y) { return v; }
  let past = select(v - edge.y, edge.x - v, v < edge.x);
  let turns = floor(past / range);
  let rest = past - turns * range;
  let even = (u32(turns) & 1u) == 0u;
  return select(edge.x + rest, edge.y - rest, even != (v < edge.x));
}

// A coordinate brought into the input where the padding mode says so; places out of all reach, NaN too, are -100.
fn padded_place(value: f32, extent: u32) -> f32 {
  var v = value;
//#if BORDER
  if (is_nan(v)) { return 0.0; }
  // Between the border and a cubic kernel's reach outside it, the kernel still sees the inside.
  let reach = select(0.0, 2.0, TERMS == 4u);
  v = clamp(v, -reach, f32(extent) - 1.0 + reach);
//#else
  if (is_nan(v) || !(abs(v) < FAR)) { v = -100.0; }
//#endif
//#if REFLECT
  v = reflect_into(v, edges(extent));
//#endif
  return v;
}

// The element a term names along one axis; -1 for the zeros around the input.
fn pixel(i: i32, extent: u32) -> i32 {
//#if BORDER
  return clamp(i, 0, i32(extent) - 1);
//#elif REFLECT
  return clamp(i32(reflect_into(f32(i), edges(extent))), 0, i32(extent) - 1);
//#else
  return select(-1, i, i >= 0 && i < i32(extent));
//#endif
}

fn weight(t: u32, part: f32) -> f32 {
  if (TERMS == 1u) { return 1.0; }
  if (TERMS == 2u) { return select(1.0 - part, part, t == 1u); }
  let d = abs(part + 1.0 - f32(t));
  if (d <= 1.0) { return (1.25 * d - 2.25) * d * d + 1.0; }
  return ((-0.75 * d + 3.75) * d - 6.0) * d + 3.0;
}

fn element(i: u32) -> T {
  let map = i / params.pixels;
  let o = (map / params.channels) * params.pixels + i % params.pixels;
  var low = vec3<i32>(0);
  var part = vec3<f32>(0.0);
  for (var a = 0u; a < RANK; a++) {
    let axis = 2u - a;
    let extent = params.input[axis];
    let edge = edges(extent);
    var v = (load_grid(o * RANK + a) + 1.0) * 0.5 * (edge.y - edge.x) + edge.x;
    if (TERMS == 1u) { v = round(v); }
    v = padded_place(v, extent);
    let whole = floor(v);
    low[axis] = i32(whole) - i32((TERMS - 1u) / 2u);
    part[axis] = v - whole;
  }
  var count = TERMS;
  for (var a = 1u; a < RANK; a++) { count *= TERMS; }
//#if !WEIGHTED
  let at = vec3<i32>(
    pixel(low.x, params.input.x),
    pixel(low.y, params.input.y),
    pixel(low.z, params.input.z),
  );
  if (any(at < vec3<i32>(0))) { return T(); }
  return load_x(((map * params.input.x + u32(at.x)) * params.input.y + u32(at.y)) * params.input.z + u32(at.z));
//#else
  var sum = 0.0;
  for (var k = 0u; k < count; k++) {
    let t = vec3<u32>(k / (TERMS * TERMS), (k / TERMS) % TERMS, k % TERMS);
    var at = vec3<i32>(0);
    var w = 1.0;
    for (var axis = 3u - RANK; axis < 3u; axis++) {
      at[axis] = pixel(low[axis] + i32(t[axis]), params.input[axis]);
      w *= weight(t[axis], part[axis]);
    }
    if (any(at < vec3<i32>(0))) { continue; }
    let line = (map * params.input.x + u32(at.x)) * params.input.y + u32(at.y);
    sum += w * f32(load_x(line * params.input.z + u32(at.z)));
  }
//#if INTEGER
  return T(clamp(trunc(sum), params.lowest, params.highest));
//#else
  return T(sum);
//#endif
//#endif
}

//#include elements_of_four
