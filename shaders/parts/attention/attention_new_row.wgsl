// The newest row of keys and values made ready by the last invocations of a workgroup, which have no queries: as the caches
// have it, for this workgroup, and one workgroup sets it into them.
  let sets = split == 0u && row0 == 0u && newest >= 0 && newest < i32(params.keys);
  for (var i = THREADS - 1u - t; i < QUADS + QUADS_V; i += THREADS) {
    let part = select(2u, 1u, i < QUADS);
    let d = select(i - QUADS, i, i < QUADS);
    let strides = select(params.new_row_strides.zw, params.new_row_strides.xy, i < QUADS);
    let base = select(params.value_base, params.key_base, i < QUADS) + dot(vec2<u32>(batch, kv_head), strides);
    let x = new_quad(part, base, d, angles);
    if (i < QUADS) {
      new_k[d] = as_kept(x);
      if (sets) { store4_k(((k_base + u32(newest) * params.k_strides.z) >> 2u) + d, x[0], x[1], x[2], x[3]); }
    } else {
      new_v[d] = as_kept(x);
      if (sets) { store4_v(((v_base + u32(newest) * params.v_strides.z) >> 2u) + d, x[0], x[1], x[2], x[3]); }
    }
  }
