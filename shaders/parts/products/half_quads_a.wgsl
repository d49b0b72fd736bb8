//#if TRANS_A
// A[k, m .. m + 3]
fn quad_a(base: u32, m: u32, k: u32) -> vec4<f16> {
//#if VEC_A
  let v = half4_a((base + k * params.m + min(m, params.m - 4u)) >> 2u);
//#else
  let row = base + k * params.m;
  let last = params.m - 1u;
  let v = vec4<f16>(half_a(row + min(m, last)), half_a(row + min(m + 1u, last)),
    half_a(row + min(m + 2u, last)), half_a(row + min(m + 3u, last)));
//#endif
//#if GUARD_K
  return select(vec4<f16>(), v, k < params.k);
//#else
  return v;
//#endif
}

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
// A[m, k .. k + 3]
fn quad_a(base: u32, m: u32, k: u32) -> vec4<f16> {
  let at = base + min(m, params.m - 1u) * params.k + k;
//#if VEC_A
  let v = half4_a(at >> 2u);
//#else
  let v = vec4<f16>(half_a(at), half_a(at + 1u), half_a(at + 2u), half_a(at + 3u));
//#endif
//#if GUARD_K
  return select(vec4<f16>(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
//#else
  return v;
//#endif
}

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
