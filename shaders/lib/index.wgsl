// The number of this invocation in a grid folded by Target.grid: x first, then y, then z.
fn global_index(gid: vec3<u32>, nwg: vec3<u32>, workgroup: u32) -> u32 {
  return gid.x + (gid.y + gid.z * nwg.y) * (nwg.x * workgroup);
}

// The number of this workgroup in a folded grid.
fn workgroup_index(wid: vec3<u32>, nwg: vec3<u32>) -> u32 {
  return wid.x + (wid.y + wid.z * nwg.y) * nwg.x;
}

// An ONNX index, which may count from the end, counted from the front; outside [-size, size) the nearest element.
fn wrap_index(index: i32, size: u32) -> u32 {
  let n = i32(size);
  return u32(clamp(select(index, index + n, index < 0), 0, n - 1));
}

// i modulo n, in [0, n).
fn positive_mod(i: i32, n: i32) -> u32 {
  let r = i32_rem(i, n);
  return u32(select(r, r + n, r < 0));
}

// The element of n at place i of an endless tensor that is reflected at its ends, which do not repeat.
fn mirrored(i: i32, n: i32) -> u32 {
  let m = i32(positive_mod(i, max(1, 2 * n - 2)));
  return u32(n - 1 - abs(n - 1 - m));
}

// A real number as an index; NaN is beyond every axis.
fn truncated_index(x: f32) -> i32 {
  return select(i32(x), 0x7fffffff, is_nan(x));
}

// The elements of group g. The last group may be cut short: what is beyond it repeats the last element.
fn group_of_four(g: u32, size: u32) -> vec4<u32> {
  return min(vec4<u32>(4u * g, 4u * g + 1u, 4u * g + 2u, 4u * g + 3u), vec4<u32>(size - 1u));
}
