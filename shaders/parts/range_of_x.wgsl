// `low` and `high`: the least and the greatest of x and 0, of the fours of x from `$first` on in steps of `$step`. NaN is none of them.
// FOURS: x has whole fours.
//#if FOURS
  // x has whole fours.
  var least = vec4<f32>();
  var most = vec4<f32>();
  for (var g = $first; g * 4u < params.size; g += $step) {
    let v = load4_x(g);
    let number = (bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu)) <= vec4<u32>(0x7f800000u);
    least = min(least, select(vec4<f32>(), v, number));
    most = max(most, select(vec4<f32>(), v, number));
  }
  low = min(min(least.x, least.y), min(least.z, least.w));
  high = max(max(most.x, most.y), max(most.z, most.w));
//#else
  for (var g = $first; g * 4u < params.size; g += $step) {
    let v = load4_x(g);
    //#unroll
    for (var c = 0u; c < 4u; c++) {
      if (g * 4u + c < params.size && !is_nan(v[c])) {
        low = min(low, v[c]);
        high = max(high, v[c]);
      }
    }
  }
//#endif
