// a[row, k .. k + 3], zero past the end. SHARES: its partial results are reduced first.
fn quad_a(row: u32, k: u32) -> vec4<T> {
//#if SHARES
  let v = vec4<T>(reduced(row, min(k, params.k - 4u)));
//#elif VEC_A
  let v = vec4<T>(load4_a((row * params.k + min(k, params.k - 4u)) >> 2u));
//#else
  let at = row * params.k;
  let last = params.k - 1u;
  let v = vec4<T>(
    T(load_a(at + min(k, last))), T(load_a(at + min(k + 1u, last))),
    T(load_a(at + min(k + 2u, last))), T(load_a(at + min(k + 3u, last))));
//#endif
  return select(vec4<T>(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
}
