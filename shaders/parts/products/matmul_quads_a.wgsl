//#if TRANS_A
// a[k, m .. m + 3]
fn quad_a(base: u32, m: u32, k: u32) -> vec4<T> {
//#if VEC_A
  var v = vec4<T>(load4_a((base + k * params.m + min(m, params.m - 4u)) >> 2u));
//#else
  let row = base + k * params.m;
  let top = params.m - 1u;
  var v = vec4<T>(
    T(load_a(row + min(m, top))), T(load_a(row + min(m + 1u, top))),
    T(load_a(row + min(m + 2u, top))), T(load_a(row + min(m + 3u, top))));
//#endif
//#if ZERO_A
  v -= vec4<T>(
    T(load_a_zero(m * params.a_zero_stride)), T(load_a_zero((m + 1u) * params.a_zero_stride)),
    T(load_a_zero((m + 2u) * params.a_zero_stride)), T(load_a_zero((m + 3u) * params.a_zero_stride)));
//#endif
//#if GUARD_K
  return select(vec4<T>(), v, k < params.k);
//#else
  return v;
//#endif
}
//#else
// a[m, k .. k + 3]
fn quad_a(base: u32, m: u32, k: u32) -> vec4<T> {
  let at = base + min(m, params.m - 1u) * params.k + k;
//#if VEC_A
  var v = vec4<T>(load4_a(at >> 2u));
//#else
  var v = vec4<T>(T(load_a(at)), T(load_a(at + 1u)), T(load_a(at + 2u)), T(load_a(at + 3u)));
//#endif
//#if ZERO_A
  v -= vec4<T>(T(load_a_zero(m * params.a_zero_stride)));
//#endif
//#if GUARD_K
  return select(vec4<T>(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
//#else
  return v;
//#endif
}
//#endif
