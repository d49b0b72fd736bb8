// The entry point that runs until the other's pipeline is there: `kernels/quick.py`.
// Four rows and columns at a time, from where the operands are.
@compute @workgroup_size(THREADS)
fn quick(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let group = workgroup_index(wid, nwg);
  if (group >= params.groups) { return; }
  let plane = group / (params.m_tiles * params.n_tiles);
  let tile = group - plane * (params.m_tiles * params.n_tiles);
  let m0 = (tile / params.n_tiles) * TILE_M;
  let n0 = (tile % params.n_tiles) * TILE_N;
//#if SPLIT
  let split = plane / params.batches;
  let batch = plane - split * params.batches;
//#else
  let split = 0u;
  let batch = plane;
//#endif
  let base_a = batch_base(batch, params.a_strides);
  let base_b = batch_base(batch, params.b_strides);
  let share = params.steps * SLICES * TILE_K;
  let end = min(split * share + share, params.k);
  for (var e = local; e < TILE_M * TILE_N / 16u; e += THREADS) {
    let row = m0 + e / (TILE_N / 4u) * 4u;
    let col = n0 + e % (TILE_N / 4u) * 4u;
    var sums = array<vec4<T>, 4>();
    for (var k = split * share; k < end; k += 4u) {
      var right: array<vec4<T>, 4>;
      var left: array<vec4<T>, 4>;
      //#unroll
      for (var c = 0u; c < 4u; c++) {
//#if TRANS_B
        let column = quad_b(base_b, k, col + c);
        right[0][c] = column[0];
        right[1][c] = column[1];
        right[2][c] = column[2];
        right[3][c] = column[3];
//#else
        right[c] = quad_b(base_b, k + c, col);
//#endif
//#if TRANS_A
        let across = quad_a(base_a, row, k + c);
        left[0][c] = across[0];
        left[1][c] = across[1];
        left[2][c] = across[2];
        left[3][c] = across[3];
//#else
        left[c] = quad_a(base_a, row + c, k);
//#endif
      }
      //#unroll
      for (var r = 0u; r < 4u; r++) {
        sums[r] += left[r][0] * right[0] + left[r][1] * right[1] + left[r][2] * right[2] + left[r][3] * right[3];
      }
    }
    // `finish` is there once, in a loop whose count compilers do not know.
    let rows = min(4u, max(params.m, row) - row);
    for (var r = 0u; r < rows; r++) {
      put(plane, batch, row + r, col, sums[0]);
      sums[0] = sums[1];
      sums[1] = sums[2];
      sums[2] = sums[3];
    }
  }
}
