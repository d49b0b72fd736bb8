//#if TRANS_A
// Move `e` takes two k of four columns of it.
fn from_a(e: u32) -> vec2<u32> {
  return vec2<u32>((e % (TILE_M / 4u)) * 4u, e / (TILE_M / 4u) * 2u);
}

fn stage_a(slice: u32, at: vec2<u32>, v: vec4<f16>, w: vec4<f16>) {
  let place = slice * A_SIZE + at.y / 2u * A_PITCH + at.x / 2u;
  tile_a[place] = vec4<f16>(v[0], w[0], v[1], w[1]);
  tile_a[place + 1u] = vec4<f16>(v[2], w[2], v[3], w[3]);
}
//#else
// Move `e` takes four k of two rows of it.
fn from_a(e: u32) -> vec2<u32> {
  return vec2<u32>(e / (TILE_K / 4u) * 2u, (e % (TILE_K / 4u)) * 4u);
}

fn stage_a(slice: u32, at: vec2<u32>, v: vec4<f16>, w: vec4<f16>) {
  let place = slice * A_SIZE + at.y / 2u * A_PITCH + at.x / 2u;
  tile_a[place] = vec4<f16>(v.xy, w.xy);
  tile_a[place + A_PITCH] = vec4<f16>(v.zw, w.zw);
}
//#endif
