// `quad_$t`: four neighbours in $t as float16, from ($m, k) on; zero past the last k. They are along $m where $along, as the matrix
// has k rows then, else along k. $vec: they are one vec4 in memory.
//#if $along
fn quad_$t(base: u32, $arguments) -> vec4<f16> {
//#if $vec
  let v = half4_$t((base + k * params.$m + min($m, params.$m - 4u)) >> 2u);
//#else
  let row = base + k * params.$m;
  let last = params.$m - 1u;
  let v = vec4<f16>(half_$t(row + min($m, last)), half_$t(row + min($m + 1u, last)),
    half_$t(row + min($m + 2u, last)), half_$t(row + min($m + 3u, last)));
//#endif
//#if GUARD_K
  return select(vec4<f16>(), v, k < params.k);
//#else
  return v;
//#endif
}
//#else
fn quad_$t(base: u32, $arguments) -> vec4<f16> {
  let at = base + min($m, params.$m - 1u) * params.k + k;
//#if $vec
  let v = half4_$t(at >> 2u);
//#else
  let v = vec4<f16>(half_$t(at), half_$t(at + 1u), half_$t(at + 2u), half_$t(at + 3u));
//#endif
//#if GUARD_K
  return select(vec4<f16>(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
//#else
  return v;
//#endif
}
//#endif
