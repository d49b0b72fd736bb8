// `stage_$t`: put what `quad_$t` gives of two rows or columns into tile_$t, pairs along k next to each other.
//#if $along
// Move `e` takes two k of four columns of it.
fn from_$t(e: u32) -> vec2<u32> {
  return vec2<u32>((e % ($tile / 4u)) * 4u, e / ($tile / 4u) * 2u);
}

fn stage_$t(slice: u32, at: vec2<u32>, v: vec4<f16>, w: vec4<f16>) {
  let place = slice * $size + at.y / 2u * $pitch + at.x / 2u;
  tile_$t[place] = vec4<f16>(v[0], w[0], v[1], w[1]);
  tile_$t[place + 1u] = vec4<f16>(v[2], w[2], v[3], w[3]);
}
//#else
// Move `e` takes four k of two rows of it.
fn from_$t(e: u32) -> vec2<u32> {
  return vec2<u32>(e / (TILE_K / 4u) * 2u, (e % (TILE_K / 4u)) * 4u);
}

fn stage_$t(slice: u32, at: vec2<u32>, v: vec4<f16>, w: vec4<f16>) {
  let place = slice * $size + at.y / 2u * $pitch + at.x / 2u;
  tile_$t[place] = vec4<f16>(v.xy, w.xy);
  tile_$t[place + $pitch] = vec4<f16>(v.zw, w.zw);
}
//#endif
