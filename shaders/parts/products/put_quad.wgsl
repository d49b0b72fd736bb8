// Writes four results of row `row` (counted over batches) from column `col` on.
fn put(row: u32, col: u32, sum: vec4<T>) {
  let v = finish(sum, row, col);
  let at = row * params.n + col;
//#include store_quad
}
