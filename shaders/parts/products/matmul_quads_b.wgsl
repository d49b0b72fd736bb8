//#if TRANS_B
// b[n, k .. k + 3]
fn quad_b(base: u32, k: u32, n: u32) -> vec4<T> {
  let at = base + min(n, params.n - 1u) * params.k + k;
//#if VEC_B
  var v = vec4<T>(load4_b(at >> 2u));
//#else
  var v = vec4<T>(T(load_b(at)), T(load_b(at + 1u)), T(load_b(at + 2u)), T(load_b(at + 3u)));
//#endif
//#if ZERO_B
  v -= vec4<T>(T(load_b_zero(n * params.b_zero_stride)));
//#endif
//#if GUARD_K
  return select(vec4<T>(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
//#else
  return v;
//#endif
}
//#else
// b[k, n .. n + 3]
fn quad_b(base: u32, k: u32, n: u32) -> vec4<T> {
//#if VEC_B
  var v = vec4<T>(load4_b((base + k * params.n + min(n, params.n - 4u)) >> 2u));
//#else
  let row = base + k * params.n;
  let last = params.n - 1u;
  var v = vec4<T>(
    T(load_b(row + min(n, last))), T(load_b(row + min(n + 1u, last))),
    T(load_b(row + min(n + 2u, last))), T(load_b(row + min(n + 3u, last))));
//#endif
//#if ZERO_B
  v -= vec4<T>(
    T(load_b_zero(n * params.b_zero_stride)), T(load_b_zero((n + 1u) * params.b_zero_stride)),
    T(load_b_zero((n + 2u) * params.b_zero_stride)), T(load_b_zero((n + 3u) * params.b_zero_stride)));
//#endif
//#if GUARD_K
  return select(vec4<T>(), v, k < params.k);
//#else
  return v;
//#endif
}
//#endif
