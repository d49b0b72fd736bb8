// q, k, v and y as vec4s of components, from element `base` on: what all attention kernels read and write. VEC, RANGE, LENGTHS, LONG,
// PROMPT and the fields of params: as attention_flash.wgsl tells. PACKED_ROWS, NIBBLES: k and v are packed rows of 8 or
// 4 bits; their strides and bases count bytes.
//#include attention_quad x=q strides=q_strides size=DIM

//#if PACKED_ROWS
//#include attention_packed_quad x=k quads=QUADS

//#include attention_packed_quad x=v quads=QUADS_V
//#else
//#include attention_quad x=k strides=k_strides size=DIM

//#include attention_quad x=v strides=v_strides size=DIM_V
//#endif

// Vec4 `d` of the components of a result that begins at `base`.
fn put(base: u32, d: u32, x: vec4<f32>) {
  if (d >= QUADS_V) { return; }
//#include attention_put
}

//#if RANGE
// The position of the first query, and how many keys there are.
fn placed(batch: u32) -> vec2<i32> {
  var first = params.reach.x;
  var length = i32(params.keys);
//#if LENGTHS
//#if LONG
  length = i64_low(load_lengths(batch)) + params.reach.w;
//#else
  length = load_lengths(batch) + params.reach.w;
//#endif
  first = length - i32(params.queries);
//#endif
//#if PROMPT
  if (load_prompt(0u) == i32(params.queries)) { first = 0; }
//#endif
  return vec2<i32>(first, length);
}

// The keys [x, y) that a query sees.
fn visible(batch: u32, query: u32) -> vec2<u32> {
  let at = placed(batch);
  return keys_in_reach(at.x + i32(query), clamp(at.y, 0, i32(params.keys)), params.reach.yz);
}
//#endif
