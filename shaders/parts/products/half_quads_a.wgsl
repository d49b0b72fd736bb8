//#if TRANS_A
// A[k, m .. m + 3]
fn quad_a(base: u32, m: u32, k: u32) -> vec4<f16> {
//#if VEC_A
  let v = half4_a((base + k * params.m + min(m, params.m - 4u)) >> 2u);
//#else
  let row = base + k * params.m;
  let last = params.m - 1u;
  let v = vec4<f16>(half_a(row + min(m, last)), half_a(row + min(m + 1u, last)),
    half_a(row + min(m + 2u, last)), half_a(row + min(m + 3u, last)));
//#endif
//#if GUARD_K
  return select(vec4<f16>(), v, k < params.k);
//#else
  return v;
//#endif
}
//#else
// A[m, k .. k + 3]
fn quad_a(base: u32, m: u32, k: u32) -> vec4<f16> {
  let at = base + min(m, params.m - 1u) * params.k + k;
//#if VEC_A
  let v = half4_a(at >> 2u);
//#else
  let v = vec4<f16>(half_a(at), half_a(at + 1u), half_a(at + 2u), half_a(at + 3u));
//#endif
//#if GUARD_K
  return select(vec4<f16>(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
//#else
  return v;
//#endif
}
//#endif
