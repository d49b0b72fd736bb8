// The newest row of keys and values made ready by the last invocations of a workgroup, which have no queries: as the caches
// have it, for this workgroup, and one workgroup sets it into them. Packed rows need their extremes first.
  let sets = split == 0u && row0 == 0u && newest >= 0 && newest < i32(params.keys);
  for (var i = THREADS - 1u - t; i < QUADS + QUADS_V; i += THREADS) {
    let part = select(2u, 1u, i < QUADS);
    let d = select(i - QUADS, i, i < QUADS);
    let strides = select(params.new_row_strides.zw, params.new_row_strides.xy, i < QUADS);
    let base = select(params.value_base, params.key_base, i < QUADS) + dot(vec2<u32>(batch, kv_head), strides);
    let x = new_quad(part, base, d, angles);
    new_rows[i] = as_kept(x);
//#if !PACKED_ROWS
    if (sets && i < QUADS) {
      store4_k(((k_base + u32(newest) * params.k_strides.z) >> 2u) + d, x[0], x[1], x[2], x[3]);
    } else if (sets) {
      store4_v(((v_base + u32(newest) * params.v_strides.z) >> 2u) + d, x[0], x[1], x[2], x[3]);
    }
//#endif
  }
//#if PACKED_ROWS
  workgroupBarrier();
  if (t < 2u) { codings[t] = coding_of(t * QUADS, select(QUADS_V, QUADS, t == 0u)); }
  workgroupBarrier();
  let packed_k = (k_base + u32(newest) * params.k_strides.z) >> 2u;
  let packed_v = (v_base + u32(newest) * params.v_strides.z) >> 2u;
  for (var i = THREADS - 1u - t; i < (QUADS + QUADS_V) / WORD_QUADS; i += THREADS) {
    let is_key = i * WORD_QUADS < QUADS;
    let coding = codings[select(1u, 0u, is_key)];
    var word = 0u;
    for (var n = 0u; n < WORD_QUADS; n++) {
      let codes = row_codes(new_rows[i * WORD_QUADS + n], coding, MOST_CODE);
      new_rows[i * WORD_QUADS + n] = row_values(vec4<f32>(codes), coding);
      word |= dot(codes, PLACES) << (16u * n);
    }
    if (sets && is_key) {
      store4_k(packed_k + i, word, word >> 8u, word >> 16u, word >> 24u);
    } else if (sets) {
      store4_v(packed_v + i - QUADS / WORD_QUADS, word, word >> 8u, word >> 16u, word >> 24u);
    }
  }
  if (sets && t == 0u) {
    let word = codings[0];
    store4_k(packed_k + QUADS / WORD_QUADS, word, word >> 8u, word >> 16u, word >> 24u);
  }
  if (sets && t == 1u) {
    let word = codings[1];
    store4_v(packed_v + QUADS_V / WORD_QUADS, word, word >> 8u, word >> 16u, word >> 24u);
  }
//#endif
