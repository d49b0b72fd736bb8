// Vec4 `d` of the components of $x, a packed row (`lib/packed_rows.wgsl`) that begins at byte `base`.
fn quad_$x(base: u32, d: u32) -> vec4<f32> {
  let row = base >> 2u;
//#if NIBBLES
  let codes = weights_4($x[row + (d >> 1u)] >> (16u * (d & 1u)), powers_4());
  return row_values(codes, $x[row + $quads / 2u]);
//#else
  return row_values(weights_8($x[row + d], powers_8()), $x[row + $quads]);
//#endif
}
