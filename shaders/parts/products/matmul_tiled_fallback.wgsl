// The entry point that runs until the other's pipeline is there: `kernels/ir/fallback.py`.
// FALLBACK_ROWS rows and four columns at a time, from where the operands are.
//#include fallback
//#include quads_each
const FALLBACK_ROWS: u32 = 4u;

@compute @workgroup_size(128)
//#include numbered_workgroup name=fallback place=local number=group count=params.groups
  let tiles = params.m_tiles * params.n_tiles;
  let plane = group / tiles;
  let tile = group - plane * tiles;
  let high = quads_each(params.m, params.m_tiles);
  let wide = quads_each(params.n, params.n_tiles);
  let m0 = (tile / params.n_tiles) * high * 4u;
  let n0 = (tile % params.n_tiles) * wide * 4u;
//#if SPLIT
  let split = plane / params.batches;
  let batch = plane - split * params.batches;
  let share = quads_each(params.k, params.groups / (tiles * params.batches)) * 4u;
//#else
  let split = 0u;
  let batch = plane;
  let share = params.k;
//#endif
  let base_a = batch_base(batch, params.a_strides);
  let base_b = batch_base(batch, params.b_strides);
  let end = min(split * share + share, params.k);
  for (var e = local; e < high * wide * (4u / FALLBACK_ROWS); e += 128u) {
    let row = m0 + e / wide * FALLBACK_ROWS;
    let col = n0 + e % wide * 4u;
    var sums = array<vec4<T>, FALLBACK_ROWS>();
    for (var k = split * share; k < end; k += 4u) {
      var right: array<vec4<T>, 4>;
      var left: array<vec4<T>, FALLBACK_ROWS>;
      //#unroll
      for (var c = 0u; c < 4u; c++) {
//#if TRANS_B
        let column = vec4<T>(quad_b(base_b, k, col + c));
        right[0][c] = column[0];
        right[1][c] = column[1];
        right[2][c] = column[2];
        right[3][c] = column[3];
//#else
        right[c] = vec4<T>(quad_b(base_b, k + c, col));
//#endif
//#if TRANS_A
        let across = vec4<T>(quad_a(base_a, row, k + c));
        left[0][c] = across[0];
        left[1][c] = across[1];
        left[2][c] = across[2];
        left[3][c] = across[3];
//#endif
      }
      //#unroll
      for (var r = 0u; r < FALLBACK_ROWS; r++) {
//#if !TRANS_A
        left[r] = vec4<T>(quad_a(base_a, row + r, k));
//#endif
        sums[r] += left[r][0] * right[0] + left[r][1] * right[1] + left[r][2] * right[2] + left[r][3] * right[3];
      }
    }
    // `finish` is there once, in a loop whose count compilers do not know.
    let rows = min(FALLBACK_ROWS, max(params.m, row) - row);
    for (var r = 0u; r < rows; r++) {
      put(plane, batch, row + r, col, sums[0]);
      //#unroll
      for (var i = 0u; i < FALLBACK_ROWS - 1u; i++) {
        sums[i] = sums[i + 1u];
      }
    }
  }
}
//#include fallback_end
