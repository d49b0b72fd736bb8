// y[m, chunk] = round(a[m, chunk] / scale) in 8 bits, scale[m, chunk] = max |a[m, chunk]| / 127: rows in chunks of 32, the last
// one filled up with zeros. LANES invocations share a chunk.
//
// Bytes lie in the order in which words of BITS-bit weights come apart (matmul_packed_dot.wgsl): of the 32 / BITS numbers that
// meet one of these, word j has every (8 / BITS)th from j on. A chunk with a NaN or an infinity has no finite scale.
//
// VEC: rows are whole vec4s.
//#tensors a -> y, scales
const BITS: u32 = 4u;
const LANES: u32 = 4u;
const PER: u32 = 8u / BITS;
const WORDS: u32 = 8u / LANES;

struct Params {
  k: u32,
  chunks: u32,
  jobs: u32,
}

var<workgroup> most: array<u32, 64>;

// a[row, k .. k + 3], zero past the end.
fn quad(row: u32, k: u32) -> vec4<f32> {
//#if VEC
  let v = vec4<f32>(load4_a((row * params.k + min(k, params.k - 4u)) >> 2u));
//#else
  let at = row * params.k;
  let last = params.k - 1u;
  let v = vec4<f32>(
    f32(load_a(at + min(k, last))), f32(load_a(at + min(k + 1u, last))),
    f32(load_a(at + min(k + 2u, last))), f32(load_a(at + min(k + 3u, last))));
//#endif
  return select(vec4<f32>(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
}

@compute @workgroup_size(64)
fn main(
  @builtin(global_invocation_id) gid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) t: u32,
) {
  let job = global_index(gid, nwg, 64u);
  let share = job % LANES;
  let chunk = min(job, params.jobs - 1u) / LANES;
  let row = chunk / params.chunks;
  let first = (chunk - row * params.chunks) * 32u + share * (4u * WORDS);
  var values: array<vec4<f32>, WORDS>;
  // As bits: a NaN is more than any number, and is not lost.
  var mine = vec4<u32>();
  //#unroll
  for (var i = 0u; i < WORDS; i++) {
    values[i] = quad(row, first + i * 4u);
    mine = max(mine, bitcast<vec4<u32>>(values[i]) & vec4<u32>(0x7fffffffu));
  }
  most[t] = max(max(mine.x, mine.y), max(mine.z, mine.w));
  workgroupBarrier();
  if (job >= params.jobs) { return; }
  var all = 0u;
  //#unroll
  for (var i = 0u; i < LANES; i++) {
    all = max(all, most[t - share + i]);
  }
  let scale = bitcast<f32>(all) / 127.0;
  if (share == 0u) { store_scales(chunk, scale); }
  let levels = select(1.0 / scale, 0.0, scale == 0.0);
  //#unroll
  for (var w = 0u; w < WORDS; w++) {
    let at = w / PER * (4u * PER) + w % PER;
    let v = vec4<f32>(
      values[at / 4u][at % 4u], values[(at + PER) / 4u][(at + PER) % 4u],
      values[(at + 2u * PER) / 4u][(at + 2u * PER) % 4u], values[(at + 3u * PER) / 4u][(at + 3u * PER) % 4u]);
    store_y(job * WORDS + w, pack4xI8Clamp(vec4<i32>(round(v * levels))));
  }
}
