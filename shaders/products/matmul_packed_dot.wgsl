// y[m, n] = finish(sum over chunks of scales_a[m, chunk] * scales[n, block] * (a[m, chunk] . (b[n, chunk] - zero))), in tiles of
// TILE_M x TILE_N a workgroup: rows of 8 bits by weights of BITS bits, products taken four at a time (dot4I8Packed).
//
// A chunk is 32 numbers, eight words of a row (quantize_chunks.wgsl) and BITS words of weights, which come apart on their way
// into workgroup memory: 8 / BITS words of int8 numbers each. Its sums are exact; those over chunks are float32.
// 32 invocations in a row make 4 x 8 places of a tile, as in matmul_tiled.wgsl.
// SPLIT: chunks are split across workgroups, and y holds the partial sums [split, m, n].
//
// b is [n][blocks][BLOCK weights, low bits first]. ZEROS: packed zero points, each row on a byte. FOURS: an invocation moves
// whole vec4s of weights. GUARD: the last share of the chunks is not whole. VEC_Y: rows of y are whole vec4s.
//#tensors a, b, scales, scales_a, zeros -> y
//#type T = y
const TILE_M: u32 = 64u;
const TILE_N: u32 = 128u;
const ROWS: u32 = 8u;
const QUADS: u32 = 2u;
const BITS: u32 = 4u;
const BLOCK: u32 = 32u;

const WORDS: u32 = 8u;
const PER: u32 = 8u / BITS;
const MASK: u32 = ((1u << BITS) - 1u) * 0x01010101u;
const SIGNS: u32 = 0x80808080u;
const WIDE: u32 = TILE_N / (4u * QUADS);
const HIGH: u32 = TILE_M / ROWS;
const THREADS: u32 = WIDE * HIGH;
const RESULTS: u32 = ROWS * QUADS;
const A_PITCH: u32 = TILE_M / 4u + 1u;
const B_PITCH: u32 = TILE_N / 4u;
// Packed words of a chunk that an invocation moves, all of one column.
const MOVES_B: u32 = TILE_N * BITS / THREADS;

struct Params {
  m: u32,
  n: u32,
  chunks: u32,
  steps: u32,
  m_tiles: u32,
  n_tiles: u32,
  groups: u32,
  blocks: u32,
  zero_pitch: u32,
}

//#if !SPLIT
//#include finish_quad
//#endif

var<workgroup> tile_a: array<vec4<u32>, WORDS * A_PITCH>;
var<workgroup> tile_b: array<vec4<u32>, WORDS * B_PITCH>;
var<workgroup> steps_a: array<vec4<f32>, TILE_M / 4u>;
var<workgroup> steps_b: array<vec4<f32>, TILE_N / 4u>;

// Four weights, a byte each, less the zero points in `zero`: no byte borrows from another.
fn centred(word: u32, zero: u32) -> u32 {
//#if BITS8
  return word ^ SIGNS;
//#else
  return (((word & MASK) | SIGNS) - zero) ^ SIGNS;
//#endif
}

// What an invocation moves in a step: half a chunk of a row of a, some words of a column of b, and their scales.
struct Moved {
  a: vec4<u32>,
  b: array<u32, MOVES_B>,
  scale_a: f32,
  scale_b: f32,
  zero: u32,
}

// `row`: of the half chunk; `scaled`: of the scale; `n`: the column; `word`: the first of its words.
fn moved(row: u32, half: u32, scaled: u32, n: u32, word: u32, chunk: u32) -> Moved {
  let at = min(chunk, params.chunks - 1u);
  let block = at / (BLOCK / 32u);
  var v: Moved;
  v.a = load4_a((row * params.chunks + at) * 2u + half);
  v.scale_a = load_scales_a(scaled * params.chunks + at);
//#if GUARD
  v.scale_a = select(0.0, v.scale_a, chunk < params.chunks);
//#endif
  v.scale_b = f32(load_scales(n * params.blocks + block));
//#if ZEROS
  let bit = block * BITS;
  v.zero = ((u32(load_zeros(n * params.zero_pitch + (bit >> 3u))) >> (bit & 7u)) & ((1u << BITS) - 1u)) * 0x01010101u;
//#else
  v.zero = (1u << (BITS - 1u)) * 0x01010101u;
//#endif
  let first = (n * params.blocks * (BLOCK / 32u) + at) * BITS + word;
//#if FOURS
  //#unroll
  for (var i = 0u; i < MOVES_B / 4u; i++) {
    let four = load4_b((first >> 2u) + i);
    v.b[i * 4u] = four[0];
    v.b[i * 4u + 1u] = four[1];
    v.b[i * 4u + 2u] = four[2];
    v.b[i * 4u + 3u] = four[3];
  }
//#else
  //#unroll
  for (var i = 0u; i < MOVES_B; i++) {
    v.b[i] = load_b(first + i);
  }
//#endif
  return v;
}

@compute @workgroup_size(THREADS)
//#include numbered_workgroup name=main place=t number=group count=params.groups
  let place = t / 32u;
  let tx = place % (WIDE / 8u) * 8u + t % 8u;
  let ty = place / (WIDE / 8u) * 4u + t % 32u / 8u;
  let split = group / (params.m_tiles * params.n_tiles);
  let tile = group - split * (params.m_tiles * params.n_tiles);
  let m0 = tile / params.n_tiles * TILE_M;
  let n0 = tile % params.n_tiles * TILE_N;

  let half = t % 2u;
  let row_a = t / 2u % TILE_M;
  let row = min(m0 + row_a, params.m - 1u);
  let scaled = min(m0 + t % TILE_M, params.m - 1u);
  let column = t % TILE_N;
  let word = t / TILE_N * MOVES_B;
  let n = min(n0 + column, params.n - 1u);
  let first = split * params.steps;
  var next = moved(row, half, scaled, n, word, first);
  var sums: array<vec4<T>, RESULTS>;
  for (var step = 0u; step < params.steps; step++) {
    if (t < TILE_M * 2u) {
      //#unroll
      for (var c = 0u; c < 4u; c++) {
        tile_a[(half * 4u + c) * A_PITCH + row_a / 4u][row_a % 4u] = next.a[c];
      }
    }
    if (t < TILE_M) { steps_a[t / 4u][t % 4u] = next.scale_a; }
    if (t < TILE_N) { steps_b[t / 4u][t % 4u] = next.scale_b; }
    //#unroll
    for (var i = 0u; i < MOVES_B; i++) {
      //#unroll
      for (var j = 0u; j < PER; j++) {
        let at = ((word + i) * PER + j) * B_PITCH + column / 4u;
        tile_b[at][column % 4u] = centred(next.b[i] >> (j * BITS), next.zero);
      }
    }
    workgroupBarrier();
    next = moved(row, half, scaled, n, word, first + step + 1u);
    //#unroll
    for (var q = 0u; q < QUADS; q++) {
      var exact = array<vec4<i32>, ROWS>();
      //#unroll
      for (var w = 0u; w < WORDS; w++) {
        let right = tile_b[w * B_PITCH + q * WIDE + tx];
        //#unroll
        for (var g = 0u; g < ROWS / 4u; g++) {
          let left = tile_a[w * A_PITCH + g * HIGH + ty];
          //#unroll
          for (var r = 0u; r < 4u; r++) {
            exact[g * 4u + r] += vec4<i32>(
              dot4I8Packed(left[r], right[0]), dot4I8Packed(left[r], right[1]), dot4I8Packed(left[r], right[2]),
              dot4I8Packed(left[r], right[3]));
          }
        }
      }
      let right = steps_b[q * WIDE + tx];
      //#unroll
      for (var g = 0u; g < ROWS / 4u; g++) {
        let left = steps_a[g * HIGH + ty];
        //#unroll
        for (var r = 0u; r < 4u; r++) {
          sums[(g * 4u + r) * QUADS + q] += vec4<T>(exact[g * 4u + r]) * (left[r] * right);
        }
      }
    }
    workgroupBarrier();
  }

  // `finish` is there once, in a loop whose count compilers do not know; results move up in their registers.
  let rows = select(ROWS, 0u, params.n == 0u);
  for (var r = 0u; r < rows; r++) {
    let y_row = m0 + (r / 4u * HIGH + ty) * 4u + r % 4u;
    if (y_row < params.m) {
      //#unroll
      for (var q = 0u; q < QUADS; q++) {
        put(split, y_row, n0 + (q * WIDE + tx) * 4u, sums[q]);
      }
    }
    //#unroll
    for (var i = 0u; i < RESULTS - QUADS; i++) {
      sums[i] = sums[i + QUADS];
    }
  }
}

fn put(split: u32, row: u32, col: u32, sum: vec4<T>) {
  if (col >= params.n) { return; }
//#if SPLIT
  let at = (split * params.m + row) * params.n + col;
  let v = sum;
//#else
  let at = row * params.n + col;
  let v = finish(sum, row, col);
//#endif
//#include store_quad
}
