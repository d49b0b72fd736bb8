// Stores vec4 `d` of the components of a result that begins at `base`.
//#if VEC
  store4_y((base >> 2u) + d, x[0], x[1], x[2], x[3]);
//#else
  for (var c = 0u; c < 4u; c++) {
    if (4u * d + c < DIM_V) { store_y(base + (4u * d + c) * params.y_strides.w, x[c]); }
  }
//#endif
