//#if TRANS_B
// B[n, k .. k + 3]
fn quad_b(base: u32, k: u32, n: u32) -> vec4<f16> {
  let at = base + min(n, params.n - 1u) * params.k + k;
//#if VEC_B
  let v = half4_b(at >> 2u);
//#else
  let v = vec4<f16>(half_b(at), half_b(at + 1u), half_b(at + 2u), half_b(at + 3u));
//#endif
//#if GUARD_K
  return select(vec4<f16>(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
//#else
  return v;
//#endif
}

// Move `e` takes four k of two rows of it.
fn from_b(e: u32) -> vec2<u32> {
  return vec2<u32>(e / (TILE_K / 4u) * 2u, (e % (TILE_K / 4u)) * 4u);
}

fn stage_b(slice: u32, at: vec2<u32>, v: vec4<f16>, w: vec4<f16>) {
  let place = slice * B_SIZE + at.y / 2u * B_PITCH + at.x / 2u;
  tile_b[place] = vec4<f16>(v.xy, w.xy);
  tile_b[place + B_PITCH] = vec4<f16>(v.zw, w.zw);
}
//#else
// B[k, n .. n + 3]
fn quad_b(base: u32, k: u32, n: u32) -> vec4<f16> {
//#if VEC_B
  let v = half4_b((base + k * params.n + min(n, params.n - 4u)) >> 2u);
//#else
  let row = base + k * params.n;
  let last = params.n - 1u;
  let v = vec4<f16>(half_b(row + min(n, last)), half_b(row + min(n + 1u, last)),
    half_b(row + min(n + 2u, last)), half_b(row + min(n + 3u, last)));
//#endif
//#if GUARD_K
  return select(vec4<f16>(), v, k < params.k);
//#else
  return v;
//#endif
}

// Move `e` takes two k of four columns of it.
fn from_b(e: u32) -> vec2<u32> {
  return vec2<u32>((e % (TILE_N / 4u)) * 4u, e / (TILE_N / 4u) * 2u);
}

fn stage_b(slice: u32, at: vec2<u32>, v: vec4<f16>, w: vec4<f16>) {
  let place = slice * B_SIZE + at.y / 2u * B_PITCH + at.x / 2u;
  tile_b[place] = vec4<f16>(v[0], w[0], v[1], w[1]);
  tile_b[place + 1u] = vec4<f16>(v[2], w[2], v[3], w[3]);
}
//#endif
