// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]) of float16, as matmul_tiled.wgsl, by subgroup matrices.
//
// A subgroup multiplies matrices of UNIT_M x UNIT_K and UNIT_K x UNIT_N, and sums ROWS x COLUMNS results in float32. Tiles
// lie in workgroup memory as the operands are stored: the load of a matrix says which way it is read. Two vec4s more
// a row keep rows in different banks.
//
// Compilers that check bounds prove them from the remainders by HIGH, WIDE and SUBGROUPS: a check at a load halves the
// rate. Source: Tint, robustness transform of subgroupMatrixLoad.
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
//#tensors a, b, bias -> y
//#type T = y
const TILE_M: u32 = 32u;
const TILE_N: u32 = 32u;
const TILE_K: u32 = 128u;
const UNIT_M: u32 = 16u;
const UNIT_N: u32 = 16u;
const UNIT_K: u32 = 16u;
const LANES: u32 = 32u;   // invocations of a subgroup
const HIGH: u32 = 2u;     // subgroups along m
const WIDE: u32 = 2u;     // and along n

const SLICES: u32 = 1u;
const SUBGROUPS: u32 = HIGH * WIDE;
const THREADS: u32 = SUBGROUPS * LANES;
const ROWS: u32 = TILE_M / (HIGH * UNIT_M);
const COLUMNS: u32 = TILE_N / (WIDE * UNIT_N);
//#if TRANS_A
const A_LINE: u32 = TILE_M / 4u;
const A_PITCH: u32 = A_LINE + 2u;
const A_SIZE: u32 = TILE_K * A_PITCH;
//#else
const A_LINE: u32 = TILE_K / 4u;
const A_PITCH: u32 = A_LINE + 2u;
const A_SIZE: u32 = TILE_M * A_PITCH;
//#endif
//#if TRANS_B
const B_LINE: u32 = TILE_K / 4u;
const B_PITCH: u32 = B_LINE + 2u;
const B_SIZE: u32 = TILE_N * B_PITCH;
//#else
const B_LINE: u32 = TILE_N / 4u;
const B_PITCH: u32 = B_LINE + 2u;
const B_SIZE: u32 = TILE_K * B_PITCH;
//#endif
const MOVES_A: u32 = TILE_M * TILE_K / (4u * THREADS);
const MOVES_B: u32 = TILE_N * TILE_K / (4u * THREADS);
const LINE: u32 = COLUMNS * UNIT_N / 4u;
const PITCH: u32 = LINE + 1u;
const QUADS: u32 = SUBGROUPS * UNIT_M * LINE;

//#include half_operands
alias Left = subgroup_matrix_left<f16, UNIT_K, UNIT_M>;
alias Right = subgroup_matrix_right<f16, UNIT_N, UNIT_K>;
alias Sum = subgroup_matrix_result<f32, UNIT_N, UNIT_M>;

// The tiles, and when they have been multiplied, results.
var<workgroup> memory: buffer<max(8u * (A_SIZE + B_SIZE), 16u * SUBGROUPS * UNIT_M * PITCH)>;

@compute @workgroup_size(THREADS) @diagnostic(off, chromium.subgroup_matrix_uniformity)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
  @builtin(subgroup_id) subgroup: u32,
) {
  let group = workgroup_index(wid, nwg);
  if (group >= params.groups) { return; }
  let slice = 0u;
//#include matmul_tile_of_group
  let tile_a = bufferView<array<vec4<f16>, A_SIZE>>(&memory, 0u);
  let tile_b = bufferView<array<vec4<f16>, B_SIZE>>(&memory, 8u * A_SIZE);
  let results = bufferView<array<vec4<f32>, SUBGROUPS * UNIT_M * PITCH>>(&memory, 0u);
  let first_row = subgroup / WIDE % HIGH * ROWS * UNIT_M;
  let first_col = subgroup % WIDE * COLUMNS * UNIT_N;

  var k0 = first * TILE_K;
  var next_a: array<vec4<f16>, MOVES_A>;
  var next_b: array<vec4<f16>, MOVES_B>;
//#include matrix_moves
  var sums: array<Sum, ROWS * COLUMNS>;
  for (var step = 0u; step < params.steps; step++) {
    //#unroll
    for (var i = 0u; i < MOVES_A; i++) {
      let e = local + i * THREADS;
      (*tile_a)[e / A_LINE * A_PITCH + e % A_LINE] = next_a[i];
    }
    //#unroll
    for (var i = 0u; i < MOVES_B; i++) {
      let e = local + i * THREADS;
      (*tile_b)[e / B_LINE * B_PITCH + e % B_LINE] = next_b[i];
    }
    workgroupBarrier();
    k0 = (first + min(step + 1u, params.steps - 1u)) * TILE_K;
//#include matrix_moves
    //#unroll
    for (var k = 0u; k < TILE_K / UNIT_K; k++) {
      var left: array<Left, ROWS>;
      //#unroll
      for (var r = 0u; r < ROWS; r++) {
//#if TRANS_A
        left[r] = subgroupMatrixLoad<Left, col_major>(
          tile_a, k * UNIT_K * A_PITCH + (first_row + r * UNIT_M) / 4u, A_PITCH);
//#else
        left[r] = subgroupMatrixLoad<Left, row_major>(
          tile_a, (first_row + r * UNIT_M) * A_PITCH + k * UNIT_K / 4u, A_PITCH);
//#endif
      }
      //#unroll
      for (var c = 0u; c < COLUMNS; c++) {
//#if TRANS_B
        let right = subgroupMatrixLoad<Right, col_major>(
          tile_b, (first_col + c * UNIT_N) * B_PITCH + k * UNIT_K / 4u, B_PITCH);
//#else
        let right = subgroupMatrixLoad<Right, row_major>(
          tile_b, k * UNIT_K * B_PITCH + (first_col + c * UNIT_N) / 4u, B_PITCH);
//#endif
        //#unroll
        for (var r = 0u; r < ROWS; r++) {
          sums[r * COLUMNS + c] = subgroupMatrixMultiplyAccumulate(left[r], right, sums[r * COLUMNS + c]);
        }
      }
    }
    workgroupBarrier();
  }

  for (var r = 0u; r < ROWS; r++) {
    //#unroll
    for (var i = 0u; i < ROWS; i++) {
      if (r == i) {
        //#unroll
        for (var c = 0u; c < COLUMNS; c++) {
          subgroupMatrixStore<row_major>(
            results, subgroup % SUBGROUPS * UNIT_M * PITCH + c * UNIT_N / 4u, sums[i * COLUMNS + c], PITCH);
        }
      }
    }
    workgroupBarrier();
    for (var i = 0u; i < (QUADS + THREADS - 1u) / THREADS; i++) {
      let e = local + i * THREADS;
      let line = e / LINE;
      let place = line / UNIT_M;
      let row = m0 + (place / WIDE * ROWS + r) * UNIT_M + line % UNIT_M;
      let col = n0 + place % WIDE * COLUMNS * UNIT_N + e % LINE * 4u;
      if (e < QUADS && row < params.m) { put(plane, batch, row, col, (*results)[line * PITCH + e % LINE]); }
    }
    workgroupBarrier();
  }
}
//#include matmul_tiled_fallback
//#include matmul_tile_put
