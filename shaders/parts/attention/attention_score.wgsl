// The score `s` of a key, whose products with a query are summed up in four parts; its number of the mask is `$mask`.
  var s = products.x + products.y + products.z + products.w;
//#if CAP
  s = capped(s, params.cap);
//#endif
//#if MASK
  s += f32(load_mask($mask));
//#endif
