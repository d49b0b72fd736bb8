// y[b, m, n] = finish(sum over s of parts[s, b, m, n]): the second pass of a matrix product whose k was split.
//#tensors parts -> y
//#type T = y
struct Params {
  size: u32,
  n: u32,
  splits: u32,
}

//#include finish_quad

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
//#if VEC_Y
  let at = global_index(gid, nwg, 64u) * 4u;
  if (at >= params.size) { return; }
  // Four shares are on their way at once.
  let last = params.splits - 1u;
  var sum = vec4<T>();
  for (var s = 0u; s < params.splits; s += 4u) {
    let share1 = load4_parts((min(s + 1u, last) * params.size + at) >> 2u);
    let share2 = load4_parts((min(s + 2u, last) * params.size + at) >> 2u);
    let share3 = load4_parts((min(s + 3u, last) * params.size + at) >> 2u);
    sum += load4_parts((s * params.size + at) >> 2u);
    sum += select(vec4<T>(), share1, s + 1u <= last);
    sum += select(vec4<T>(), share2, s + 2u <= last);
    sum += select(vec4<T>(), share3, s + 3u <= last);
  }
  let row = at / params.n;
  let v = finish(sum, row, at - row * params.n);
  store4_y(at >> 2u, v[0], v[1], v[2], v[3]);
//#else
  let at = global_index(gid, nwg, 64u);
  if (at >= params.size) { return; }
  var sum = T();
  for (var s = 0u; s < params.splits; s++) {
    sum += load_parts(s * params.size + at);
  }
  let row = at / params.n;
  store_y(at, finish(vec4<T>(sum), row, at - row * params.n)[0]);
//#endif
}
