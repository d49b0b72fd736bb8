// Partial results of an attention over SHARES shares of the keys, reduced as attention_merge does.
// a[row, k .. k + 3], of its shares.
fn reduced(row: u32, k: u32) -> vec4<f32> {
  let batch = row / params.queries;
  let query = batch * params.heads + k / HEAD;
  let place = query * params.queries + row - batch * params.queries;
  let rows = params.m * params.heads;
  var tops: array<f32, SHARES>;
  var sums: array<f32, SHARES>;
  var top = LOWEST;
  //#unroll
  for (var s = 0u; s < SHARES; s++) {
    let at = (s * rows + place) * 2u;
    tops[s] = load_stats(at);
    sums[s] = load_stats(at + 1u);
    top = max(top, tops[s]);
  }
  var sum = 0.0;
  var x = vec4<f32>();
  //#unroll
  for (var s = 0u; s < SHARES; s++) {
    if (sums[s] != 0.0) {
      let share = exp(tops[s] - top);
      sum += share * sums[s];
      x += share * load4_a(((s * rows + place) * HEAD + k % HEAD) >> 2u);
    }
  }
//#if EMPTY_ZERO
  x *= select(1.0 / sum, 0.0, sum == 0.0);
//#else
  x *= 1.0 / sum;
//#endif
//#if HALF
  return vec4<f32>(unpack2x16float(pack2x16float(x.xy)), unpack2x16float(pack2x16float(x.zw)));
//#else
  return x;
//#endif
}
