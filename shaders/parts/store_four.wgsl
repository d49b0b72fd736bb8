// Stores four neighbours of a channel, of which those from `$width` on in the row are none. QUAD: rows are whole vec4s.
  let y0 = finish($v.x, $m, at);
  let y1 = finish($v.y, $m, at + 1u);
  let y2 = finish($v.z, $m, at + 2u);
  let y3 = finish($v.w, $m, at + 3u);
//#if QUAD
  store4_y(at / 4u, y0, y1, y2, y3);
//#else
  store_y(at, y0);
  if ($first + 1u < $width) { store_y(at + 1u, y1); }
  if ($first + 2u < $width) { store_y(at + 2u, y2); }
  if ($first + 3u < $width) { store_y(at + 3u, y3); }
//#endif
