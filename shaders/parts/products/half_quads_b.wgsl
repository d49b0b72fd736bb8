//#if TRANS_B
// B[n, k .. k + 3]
fn quad_b(base: u32, k: u32, n: u32) -> vec4<f16> {
  let at = base + min(n, params.n - 1u) * params.k + k;
//#if VEC_B
  let v = half4_b(at >> 2u);
//#else
  let v = vec4<f16>(half_b(at), half_b(at + 1u), half_b(at + 2u), half_b(at + 3u));
//#endif
//#if GUARD_K
  return select(vec4<f16>(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
//#else
  return v;
//#endif
}
//#else
// B[k, n .. n + 3]
fn quad_b(base: u32, k: u32, n: u32) -> vec4<f16> {
//#if VEC_B
  let v = half4_b((base + k * params.n + min(n, params.n - 4u)) >> 2u);
//#else
  let row = base + k * params.n;
  let last = params.n - 1u;
  let v = vec4<f16>(half_b(row + min(n, last)), half_b(row + min(n + 1u, last)),
    half_b(row + min(n + 2u, last)), half_b(row + min(n + 3u, last)));
//#endif
//#if GUARD_K
  return select(vec4<f16>(), v, k < params.k);
//#else
  return v;
//#endif
}
//#endif
