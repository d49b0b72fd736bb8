// The first element of matrix `index` of a stack: `params.batch` says how the stack is counted, `strides` how it lies.
fn batch_base(index: u32, strides: vec4<u32>) -> u32 {
  var rest = index;
  var base = 0u;
  for (var d = 3u; d > 0u; d--) {
    let q = rest / params.batch[d];
    base += (rest - q * params.batch[d]) * strides[d];
    rest = q;
  }
  return base + rest * strides[0];
}
