// Vec4 `d` of the components of $x from element `base` on, of which there are `$size`.
fn quad_$x(base: u32, d: u32) -> vec4<f32> {
//#if VEC
  return load4_$x((base >> 2u) + d);
//#else
  var x = vec4<f32>();
  for (var c = 0u; c < 4u; c++) {
    if (4u * d + c < $size) { x[c] = load_$x(base + (4u * d + c) * params.$strides.w); }
  }
  return x;
//#endif
}
