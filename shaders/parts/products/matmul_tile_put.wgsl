// Writes four results of row `row` of batch `batch` from column `col` on.
fn put(plane: u32, batch: u32, row: u32, col: u32, sum: vec4<T>) {
  if (col >= params.n) { return; }
//#if SPLIT
  let at = (plane * params.m + row) * params.n + col;
  let v = sum;
//#else
  let at = (batch * params.m + row) * params.n + col;
//#if BIAS
  let v = finish(sum + vec4<T>(T(load_bias((batch * params.m + row) % params.channels))), batch * params.m + row, col);
//#else
  let v = finish(sum, batch * params.m + row, col);
//#endif
//#endif
//#include store_quad
}
