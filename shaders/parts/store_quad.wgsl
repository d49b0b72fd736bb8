// Four results `v` of a row of y from column `col` on, which is element `at`. VEC_Y: rows are whole vec4s.
//#if VEC_Y
  store4_y(at >> 2u, v[0], v[1], v[2], v[3]);
//#else
  store_y(at, v[0]);
  if (col + 1u < params.n) { store_y(at + 1u, v[1]); }
  if (col + 2u < params.n) { store_y(at + 2u, v[2]); }
  if (col + 3u < params.n) { store_y(at + 3u, v[3]); }
//#endif
