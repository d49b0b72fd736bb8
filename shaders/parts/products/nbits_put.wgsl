// Writes four results of row `row` from column `col` on. PAIRED: neighbours are one result, which fusion says.
//#if PAIRED
fn pair(in0: f32, in1: f32) -> f32 {
  return in0;
}
//#endif

fn put(row: u32, col: u32, sum: vec4<T>) {
  if (row >= params.m || col >= params.n) { return; }
//#if PAIRED
  let half = row * (params.n / 2u) + col / 2u;
  store_y(half, pair(sum[0], sum[1]));
  if (col + 2u < params.n) { store_y(half + 1u, pair(sum[2], sum[3])); }
//#else
  let v = finish(sum, row, col);
  let at = row * params.n + col;
//#include store_quad
//#endif
}
