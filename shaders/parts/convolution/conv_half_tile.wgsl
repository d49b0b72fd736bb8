// Of pairs of k, a vec4 holds two rows or columns, so that two of them take the place of a vec4 of float32.
var<workgroup> tile: array<vec4<f16>, SLICES * 4u * STAGED>;
//#if SLICED
var<workgroup> shares: array<vec4<ACC>, (SLICES - 1u) * THREADS * 4u>;
//#endif

fn stage(at: u32, even: vec4<f16>, odd: vec4<f16>) {
  tile[2u * at] = vec4<f16>(even[0], odd[0], even[1], odd[1]);
  tile[2u * at + 1u] = vec4<f16>(even[2], odd[2], even[3], odd[3]);
}

fn sum_of(v: vec2<f16>) -> ACC {
  let wide = vec2<ACC>(v);
  return wide.x + wide.y;
}
