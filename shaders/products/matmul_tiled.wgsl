// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]), in tiles of TILE_M x TILE_N a workgroup.
//
// Each step of TILE_K is staged in workgroup memory while the next one is already on its way into registers: MOVES_A and
// MOVES_B vec4s of the operands an invocation. 32 invocations in a row make 4 x 8 places of a tile, which takes fewer reads
// of workgroup memory than 2 x 16.
// SLICES groups of THREADS invocations take every SLICES-th step and are summed at the end (STAGED: two groups of many
// results); with SPLIT the steps are also split across workgroups, and y holds the partial sums [split, batch, m, n].
//
// TRANS_A: a is [k, m]. TRANS_B: b is [n, k]. VEC_A, VEC_B, VEC_Y: rows are whole vec4s. GUARD_K: the last step is
// not whole. K_MAJOR: the staged tile of a is transposed, which pays with many rows an invocation. UNROLL: the
// inner loops are written out, on an H200 12% faster than loops of constant length, but slow to compile for a processor.
// ROLLED: `finish` is there once, in a loop whose count compilers do not know; results move up in their registers.
// QUANTIZED: b is n rows of packed weights of BITS bits in blocks of BLOCK, with scales and ZEROS or FLOAT_ZEROS, as
// matmul_nbits_skinny.wgsl has them; GROUPED: `group_of` says which scale k has. CODES: of NF4 or FP4, in blocks over all of b.
// ZERO_A, ZERO_B: zero points, one for all or one a row of a and a column of b. BIAS: added to a row, where rows are
// output channels of a convolution. FALLBACK: `kernels/ir/fallback.py`.
//#tensors a, b, a_zero, b_zero, bias, scales, zeros, group_of -> y
//#type T = y
const TILE_M: u32 = 32u;
const TILE_N: u32 = 32u;
const TILE_K: u32 = 16u;
const ROWS: u32 = 4u;
const QUADS: u32 = 1u;
const SLICES: u32 = 1u;
//#if QUANTIZED
const BITS: u32 = 4u;
const BLOCK: u32 = 32u;
const MASK: u32 = (1u << BITS) - 1u;
//#endif

const WIDE: u32 = TILE_N / (4u * QUADS);
const HIGH: u32 = TILE_M / ROWS;
const THREADS: u32 = WIDE * HIGH;
//#if K_MAJOR
const A_PITCH: u32 = TILE_M / 4u + 1u;
const A_SIZE: u32 = TILE_K * A_PITCH;
//#else
const A_PITCH: u32 = TILE_K / 4u + 1u;
const A_SIZE: u32 = TILE_M * A_PITCH;
//#endif
const B_PITCH: u32 = TILE_N / 4u;
const B_SIZE: u32 = TILE_K * B_PITCH;
const RESULTS: u32 = ROWS * QUADS;
const MOVES_A: u32 = TILE_M * TILE_K / (4u * THREADS);
const MOVES_B: u32 = TILE_N * TILE_K / (4u * THREADS);

struct Params {
  m: u32,
  n: u32,
  k: u32,
  steps: u32,
  m_tiles: u32,
  n_tiles: u32,
  batches: u32,
  groups: u32,
//#include batch_fields
  a_zero_stride: u32,
  b_zero_stride: u32,
  channels: u32,
  pad0: u32,
//#if QUANTIZED
  b_words: u32,
  b_blocks: u32,
  zero_pitch: u32,
  pad1: u32,
//#endif
}

//#if !SPLIT
// What becomes of four results of row `row` (counted over batches) from column `col` on.
//#include finish_quad
//#endif

//#include batch_base

//#include matmul_quads_a
//#if QUANTIZED
//#include nbits_quads
//#else
//#include matmul_quads_b
//#endif

//#if FALLBACK
// <optimized>
//#endif
var<workgroup> tile_a: array<vec4<T>, max(A_SIZE * SLICES, (SLICES - 1u) * THREADS * RESULTS)>;
var<workgroup> tile_b: array<vec4<T>, B_SIZE * SLICES>;

// Where the vec4 number `e` of a staged tile comes from: (row of a or column of b, k).
fn from_a(e: u32) -> vec2<u32> {
//#if TRANS_A
  return vec2<u32>((e % (TILE_M / 4u)) * 4u, e / (TILE_M / 4u));
//#else
  return vec2<u32>(e / (TILE_K / 4u), (e % (TILE_K / 4u)) * 4u);
//#endif
}

fn from_b(e: u32) -> vec2<u32> {
//#if TRANS_B
  return vec2<u32>(e / (TILE_K / 4u), (e % (TILE_K / 4u)) * 4u);
//#else
  return vec2<u32>((e % (TILE_N / 4u)) * 4u, e / (TILE_N / 4u));
//#endif
}

fn stage_a(slice: u32, at: vec2<u32>, v: vec4<T>) {
//#if TRANS_A
//#if K_MAJOR
  tile_a[slice * A_SIZE + at.y * A_PITCH + at.x / 4u] = v;
//#else
  //#unroll
  for (var c = 0u; c < 4u; c++) {
    tile_a[slice * A_SIZE + (at.x + c) * A_PITCH + at.y / 4u][at.y % 4u] = v[c];
  }
//#endif
//#elif K_MAJOR
  //#unroll
  for (var c = 0u; c < 4u; c++) {
    tile_a[slice * A_SIZE + (at.y + c) * A_PITCH + at.x / 4u][at.x % 4u] = v[c];
  }
//#else
  tile_a[slice * A_SIZE + at.x * A_PITCH + at.y / 4u] = v;
//#endif
}

fn stage_b(slice: u32, at: vec2<u32>, v: vec4<T>) {
//#if TRANS_B
  //#unroll
  for (var c = 0u; c < 4u; c++) {
    tile_b[slice * B_SIZE + (at.y + c) * B_PITCH + at.x / 4u][at.x % 4u] = v[c];
  }
//#else
  tile_b[slice * B_SIZE + at.y * B_PITCH + at.x / 4u] = v;
//#endif
}

@compute @workgroup_size(THREADS * SLICES)
//#include workgroup name=main place=local
  let group = workgroup_index(wid, nwg);
  if (group >= params.groups) { return; }
  let slice = local / THREADS;
  let t = local % THREADS;
  let block = t / 32u;
  let tx = block % (WIDE / 8u) * 8u + t % 8u;
  let ty = block / (WIDE / 8u) * 4u + t % 32u / 8u;
  let plane = group / (params.m_tiles * params.n_tiles);
  let tile = group - plane * (params.m_tiles * params.n_tiles);
  let m0 = (tile / params.n_tiles) * TILE_M;
  let n0 = (tile % params.n_tiles) * TILE_N;
//#if SPLIT
  let split = plane / params.batches;
  let batch = plane - split * params.batches;
  let first = split * params.steps * SLICES + slice;
//#else
  let batch = plane;
  let first = slice;
//#endif
  let base_a = batch_base(batch, params.a_strides);
  let base_b = batch_base(batch, params.b_strides);

  var k0 = first * TILE_K;
  var next_a: array<vec4<T>, MOVES_A>;
  var next_b: array<vec4<T>, MOVES_B>;
  //#unroll
  for (var i = 0u; i < MOVES_A; i++) {
    let at = from_a(t + i * THREADS);
    next_a[i] = quad_a(base_a, m0 + at.x, k0 + at.y);
  }
  //#unroll
  for (var i = 0u; i < MOVES_B; i++) {
    let at = from_b(t + i * THREADS);
    next_b[i] = quad_b(base_b, k0 + at.y, n0 + at.x);
  }

  var sums: array<vec4<T>, RESULTS>;
  for (var step = 0u; step < params.steps; step++) {
    //#unroll
    for (var i = 0u; i < MOVES_A; i++) {
      stage_a(slice, from_a(t + i * THREADS), next_a[i]);
    }
    //#unroll
    for (var i = 0u; i < MOVES_B; i++) {
      stage_b(slice, from_b(t + i * THREADS), next_b[i]);
    }
    workgroupBarrier();
    k0 = (first + min(step + 1u, params.steps - 1u) * SLICES) * TILE_K;
    //#unroll
    for (var i = 0u; i < MOVES_A; i++) {
      let at = from_a(t + i * THREADS);
      next_a[i] = quad_a(base_a, m0 + at.x, k0 + at.y);
    }
    //#unroll
    for (var i = 0u; i < MOVES_B; i++) {
      let at = from_b(t + i * THREADS);
      next_b[i] = quad_b(base_b, k0 + at.y, n0 + at.x);
    }
//#if K_MAJOR
    //#unroll UNROLL
    for (var k = 0u; k < TILE_K; k++) {
      //#unroll
      for (var q = 0u; q < QUADS; q++) {
        let right = tile_b[slice * B_SIZE + k * B_PITCH + q * WIDE + tx];
        //#unroll
        for (var g = 0u; g < ROWS / 4u; g++) {
          let left = tile_a[slice * A_SIZE + k * A_PITCH + g * HIGH + ty];
          sums[(g * 4u + 0u) * QUADS + q] += left[0] * right;
          sums[(g * 4u + 1u) * QUADS + q] += left[1] * right;
          sums[(g * 4u + 2u) * QUADS + q] += left[2] * right;
          sums[(g * 4u + 3u) * QUADS + q] += left[3] * right;
        }
      }
    }
//#else
    //#unroll UNROLL
    for (var quad = 0u; quad < TILE_K / 4u; quad++) {
      let right = slice * B_SIZE + quad * 4u * B_PITCH + tx;
      let right0 = tile_b[right];
      let right1 = tile_b[right + B_PITCH];
      let right2 = tile_b[right + 2u * B_PITCH];
      let right3 = tile_b[right + 3u * B_PITCH];
      //#unroll
      for (var r = 0u; r < ROWS; r++) {
        let left = tile_a[slice * A_SIZE + (r * HIGH + ty) * A_PITCH + quad];
        sums[r] += left[0] * right0 + left[1] * right1 + left[2] * right2 + left[3] * right3;
      }
    }
//#endif
    workgroupBarrier();
  }

//#if STAGED
  if (slice > 0u) {
    //#unroll
    for (var i = 0u; i < RESULTS; i++) {
      tile_a[i * THREADS + t] = sums[i];
    }
  }
  workgroupBarrier();
  if (slice > 0u) { return; }
  //#unroll
  for (var i = 0u; i < RESULTS; i++) {
    sums[i] += tile_a[i * THREADS + t];
  }
//#elif SLICED
  if (slice > 0u) {
    for (var i = 0u; i < RESULTS; i++) { tile_a[((slice - 1u) * RESULTS + i) * THREADS + t] = sums[i]; }
  }
  workgroupBarrier();
  if (slice > 0u) { return; }
  for (var s = 0u; s < SLICES - 1u; s++) {
    for (var i = 0u; i < RESULTS; i++) { sums[i] += tile_a[(s * RESULTS + i) * THREADS + t]; }
  }
//#endif

//#if ROLLED
  let rows = select(ROWS, 0u, params.n == 0u);
  for (var r = 0u; r < rows; r++) {
//#else
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
//#endif
//#if K_MAJOR
    let row = m0 + ((r / 4u) * HIGH + ty) * 4u + r % 4u;
//#else
    let row = m0 + r * HIGH + ty;
//#endif
//#if ROLLED
    if (row < params.m) {
      //#unroll
      for (var q = 0u; q < QUADS; q++) {
        put(plane, batch, row, n0 + (q * WIDE + tx) * 4u, sums[q]);
      }
    }
    //#unroll
    for (var i = 0u; i < RESULTS - QUADS; i++) {
      sums[i] = sums[i + QUADS];
    }
  }
//#else
    if (row < params.m) {
      //#unroll
      for (var q = 0u; q < QUADS; q++) {
        put(plane, batch, row, n0 + (q * WIDE + tx) * 4u, sums[r * QUADS + q]);
      }
    }
  }
//#endif
}

//#if FALLBACK
// </optimized>
//
// <fallback>
//#include quads_each
//#include matmul_tiled_fallback
// </fallback>

//#endif
fn put(plane: u32, batch: u32, row: u32, col: u32, sum: vec4<T>) {
  if (col >= params.n) { return; }
//#if SPLIT
  let at = (plane * params.m + row) * params.n + col;
  let v = sum;
//#else
  let at = (batch * params.m + row) * params.n + col;
//#if BIAS
  let v = finish(sum + vec4<T>(T(load_bias((batch * params.m + row) % params.channels))), batch * params.m + row, col);
//#else
  let v = finish(sum, batch * params.m + row, col);
//#endif
//#endif
//#include store_quad
}
