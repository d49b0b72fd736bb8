// What becomes of four results of row `row` (counted over batches) from column `col` on: fusion replaces it.
fn finish(value: vec4<T>, row: u32, col: u32) -> vec4<T> {
  return value;
}
