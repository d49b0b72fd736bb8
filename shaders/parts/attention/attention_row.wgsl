// A row by one invocation, from where q, k and v are. CAP, MASK, SPLIT, SINK, EMPTY_ZERO: as attention_tiled.wgsl.
// bases: of q, k, v and of the row of the mask. keys: the first, and the one after the last. out: where the result begins.
// slot: of `stats`. head: of q. LIGHT: loops whose counts compilers do not know, with less code and slower.
fn attend(bases: vec4<u32>, keys: vec2<u32>, out: u32, slot: u32, head: u32) {
//#if LIGHT
  let quads = select(QUADS, 0u, params.keys == 0u);
  let quads_v = select(QUADS_V, 0u, params.keys == 0u);
//#else
  let quads = QUADS;
  let quads_v = QUADS_V;
//#endif
  var x: array<vec4<f32>, QUADS>;
  var sums: array<vec4<f32>, QUADS_V>;
  for (var d = 0u; d < quads; d++) {
    x[d] = quad_q(bases.x, d) * params.scale;
  }
  var top = LOWEST;
  var sum = 0.0;
  for (var key = keys.x; key < keys.y; key++) {
    var products = vec4<f32>();
    for (var d = 0u; d < quads; d++) {
      products += x[d] * quad_k(bases.y + key * params.k_strides.z, d);
    }
//#include attention_score mask="bases.w + key * params.mask_strides.w"
    if (s > top) {
      let less = exp(top - s);
      top = s;
      sum *= less;
      for (var d = 0u; d < quads_v; d++) {
        sums[d] *= less;
      }
    }
    let weight = exp(s - top);
    sum += weight;
    for (var d = 0u; d < quads_v; d++) {
      sums[d] += weight * quad_v(bases.z + key * params.v_strides.z, d);
    }
  }
//#if SPLIT
  store_stats(slot, top);
  store_stats(slot + 1u, sum);
  let share = 1.0;
//#else
  let share = share_of(top, sum, head);
//#endif
  for (var d = 0u; d < quads_v; d++) {
    put(out, d, sums[d] * share);
  }
}
