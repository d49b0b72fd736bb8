// `quad_$t`: four neighbours in $t from ($m, k) on; zero past the last k. They are along $m where $along, as the matrix has k rows
// then, else along k. $vec: they are one vec4 in memory. $shifted: their zero points are subtracted.
//#if $along
fn quad_$t(base: u32, $arguments) -> vec4<T> {
//#if $vec
  var v = vec4<T>(load4_$t((base + k * params.$m + min($m, params.$m - 4u)) >> 2u));
//#else
  let row = base + k * params.$m;
  let last = params.$m - 1u;
  var v = vec4<T>(
    T(load_$t(row + min($m, last))), T(load_$t(row + min($m + 1u, last))),
    T(load_$t(row + min($m + 2u, last))), T(load_$t(row + min($m + 3u, last))));
//#endif
//#if $shifted
  v -= vec4<T>(
    T(load_$zero($m * params.$stride)), T(load_$zero(($m + 1u) * params.$stride)),
    T(load_$zero(($m + 2u) * params.$stride)), T(load_$zero(($m + 3u) * params.$stride)));
//#endif
//#if GUARD_K
  return select(vec4<T>(), v, k < params.k);
//#else
  return v;
//#endif
}
//#else
fn quad_$t(base: u32, $arguments) -> vec4<T> {
  let at = base + min($m, params.$m - 1u) * params.k + k;
//#if $vec
  var v = vec4<T>(load4_$t(at >> 2u));
//#else
  var v = vec4<T>(T(load_$t(at)), T(load_$t(at + 1u)), T(load_$t(at + 2u)), T(load_$t(at + 3u)));
//#endif
//#if $shifted
  v -= vec4<T>(T(load_$zero($m * params.$stride)));
//#endif
//#if GUARD_K
  return select(vec4<T>(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
//#else
  return v;
//#endif
}
//#endif
