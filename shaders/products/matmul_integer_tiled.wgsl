// y[b, m, n] = finish(sum over k of (a[b, m, k] - a_zero) * (b[b, k, n] - b_zero)), bytes summed exactly in 32 bits, in tiles
// of TILE_M x TILE_N a workgroup.
//
// With a' and b' the bytes as they are, a sum is  a' b' - a_zero sum(b') - b_zero sum(a') + k a_zero b_zero.  Products are
// taken four at a time (dot4I8Packed). A step is eight words of k: each invocation moves four words of a row of a and four
// columns of a word of b into workgroup memory, and adds what it moved to its share of that row's and these columns' sums.
// SLICES sets of THREADS invocations take every SLICES-th step.
//
// CONVOLUTION: b is what an image holds under a filter of KD x KH x KW: rows of y are output channels, columns its pixels.
// CENTRED_A, CENTRED_B: a' (b') has a zero point that is not 0, flipped sign bits included; parts/products/integer_operands.wgsl
// tells the other conditions. FALLBACK: `kernels/ir/fallback.py`.
//#tensors a, b, a_zero, b_zero -> y
const TILE_M: u32 = 32u;
const TILE_N: u32 = 32u;
const ROWS: u32 = 4u;
//#if CONVOLUTION
//#include kernel_sizes
const POSITIONS: u32 = KD * KH * KW;
//#endif
const SLICES: u32 = 1u;

const WORDS: u32 = 8u;
const ONES: u32 = 0x01010101u;
const WIDE: u32 = TILE_N / 4u;
const HIGH: u32 = TILE_M / ROWS;
const THREADS: u32 = WIDE * HIGH;
const A_SIZE: u32 = WORDS * TILE_M / 4u;
const STAGED: u32 = A_SIZE + WORDS * WIDE;

alias T = i32;

struct Params {
  m: u32,
  n: u32,
  k: u32,
  words: u32,
  steps: u32,
  m_tiles: u32,
  n_tiles: u32,
  groups: u32,
//#include batch_fields
  a_zero_stride: u32,
  offset_a: i32,
  offset_b: i32,
  b_zero_stride: u32,
//#if CONVOLUTION
  input: vec4<u32>,      // depth, height, width
  output: vec4<u32>,
  strides: vec4<i32>,
  dilations: vec4<u32>,
  pads: vec4<i32>,
//#endif
}

//#include finish_quad

//#include integer_operands
// Which tile of the results a workgroup has, in tiles of `size` rows and columns: its batch, first row and first column.
fn tile_of(group: u32, size: vec2<u32>) -> vec3<u32> {
  let batch = group / (params.m_tiles * params.n_tiles);
  let place = group - batch * (params.m_tiles * params.n_tiles);
  return vec3<u32>(batch, (place / params.n_tiles) * size.x, (place % params.n_tiles) * size.y);
}

//#include put_quad

//#include optimized
// For each slice: words of k by quads of rows of a, then by quads of columns of b.
var<workgroup> tile: array<vec4<u32>, max(STAGED * SLICES, SLICES / 2u * THREADS * ROWS)>;

@compute @workgroup_size(THREADS * SLICES)
//#include numbered_workgroup name=main place=local number=group count=params.groups
  let slice = local / THREADS;
  let t = local % THREADS;
  let tx = t % WIDE;
  let ty = t / WIDE;
  let first = tile_of(group, vec2<u32>(TILE_M, TILE_N));
  let batch = first.x;
  let m0 = first.y;
  let n0 = first.z;
  let base_a = batch_base(batch, params.a_strides);
  let base_b = batch_base(batch, params.b_strides);

  let row_a = t / 2u;
  let word_of_a = t % 2u * 4u;
  let word_of_b = t / WIDE;
  let m = min(m0 + row_a, params.m - 1u);
  let n = n0 + tx * 4u;
  let mine_a = slice * STAGED;
  let mine_b = mine_a + A_SIZE;
  locate(n);
  var word = slice * WORDS;
  var next_a = words_a(base_a, m, word + word_of_a);
  var next_b = columns_b(base_b, word + word_of_b, n);
  var row_sum = 0;
  var column_sum = vec4<i32>();
  var sums: array<vec4<i32>, ROWS>;
  for (var step = 0u; step < params.steps; step++) {
    //#unroll
    for (var c = 0u; c < 4u; c++) {
      tile[mine_a + (word_of_a + c) * (TILE_M / 4u) + row_a / 4u][row_a % 4u] = next_a[c];
    }
    tile[mine_b + word_of_b * WIDE + tx] = next_b;
//#if CENTRED_B
    row_sum += dot4(next_a[0], ONES) + dot4(next_a[1], ONES) + dot4(next_a[2], ONES) + dot4(next_a[3], ONES);
//#endif
//#if CENTRED_A
    column_sum += vec4<i32>(dot4(next_b[0], ONES), dot4(next_b[1], ONES), dot4(next_b[2], ONES), dot4(next_b[3], ONES));
//#endif
    workgroupBarrier();
    word += WORDS * SLICES;
    next_a = words_a(base_a, m, word + word_of_a);
    next_b = columns_b(base_b, word + word_of_b, n);
    for (var w = 0u; w < WORDS; w++) {
      let right = tile[mine_b + w * WIDE + tx];
      //#unroll
      for (var g = 0u; g < ROWS / 4u; g++) {
        let left = tile[mine_a + w * (TILE_M / 4u) + g * HIGH + ty];
        //#unroll
        for (var r = 0u; r < 4u; r++) {
          sums[g * 4u + r] += vec4<i32>(
            dot4(left[r], right[0]), dot4(left[r], right[1]), dot4(left[r], right[2]), dot4(left[r], right[3]));
        }
      }
    }
    workgroupBarrier();
  }

//#if SLICED
  for (var half = SLICES / 2u; half > 0u; half >>= 1u) {
    if (slice >= half && slice < 2u * half) {
      //#unroll
      for (var i = 0u; i < ROWS; i++) {
        tile[((slice - half) * ROWS + i) * THREADS + t] = vec4<u32>(sums[i]);
      }
    }
    workgroupBarrier();
    if (slice < half) {
      //#unroll
      for (var i = 0u; i < ROWS; i++) {
        sums[i] += vec4<i32>(tile[(slice * ROWS + i) * THREADS + t]);
      }
    }
    workgroupBarrier();
  }
//#endif
  // The shares of the sums over columns of b, one an invocation; after them those over rows of a, by quads of rows.
  tile[local] = vec4<u32>(column_sum);
  let share_a = THREADS * SLICES + (slice * 2u + t % 2u) * (TILE_M / 4u);
  tile[share_a + row_a / 4u][row_a % 4u] = u32(row_sum);
  workgroupBarrier();
  if (slice > 0u) { return; }
  let zero_b = zeros_b(n);
//#if CENTRED_A
  var columns = vec4<i32>();
  for (var s = 0u; s < SLICES * WORDS; s++) { columns += vec4<i32>(tile[s * WIDE + tx]); }
  columns -= i32(params.k) * zero_b;
//#endif
  if (n >= params.n) { return; }
  // `finish` is there once, in a loop whose count compilers do not know; results move up in their registers.
  let rows = select(ROWS, 0u, params.n == 0u);
  for (var r = 0u; r < rows; r++) {
    let quad = r / 4u * HIGH + ty;
    let row = m0 + quad * 4u + r % 4u;
    if (row < params.m) {
      var sum = sums[0];
//#if CENTRED_A
      sum -= zero_a(row) * columns;
//#endif
//#if CENTRED_B
      var total = 0;
      for (var s = 0u; s < SLICES * 2u; s++) {
        total += i32(tile[THREADS * SLICES + s * (TILE_M / 4u) + quad][r % 4u]);
      }
      sum -= total * zero_b;
//#endif
      put(batch * params.m + row, n, sum);
    }
    //#unroll
    for (var i = 0u; i < ROWS - 1u; i++) {
      sums[i] = sums[i + 1u];
    }
  }
}
//#include fallback
//#include quads_each
//#include matmul_integer_tiled_fallback
//#include fallback_end
