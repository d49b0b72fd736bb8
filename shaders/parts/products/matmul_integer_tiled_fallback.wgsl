// The entry point that runs until the other's pipeline is there: `kernels/ir/fallback.py`.
// Four rows and columns at a time, from where the operands are.
@compute @workgroup_size(128)
//#include numbered_workgroup name=fallback place=local number=group count=params.groups
  let high = quads_each(params.m, params.m_tiles);
  let wide = quads_each(params.n, params.n_tiles);
  let first = tile_of(group, vec2<u32>(high, wide) * 4u);
  let base_a = batch_base(first.x, params.a_strides);
  let base_b = batch_base(first.x, params.b_strides);
  let last = params.m - 1u;
  for (var e = local; e < high * wide; e += 128u) {
    let row = first.y + e / wide * 4u;
    let n = first.z + e % wide * 4u;
    locate(n);
    let zero_b = zeros_b(n);
    var sums = array<vec4<i32>, 4>();
    var totals = vec4<i32>();
    var columns = vec4<i32>();
    for (var word = 0u; word < params.words; word += 4u) {
      let a0 = words_a(base_a, min(row, last), word);
      let a1 = words_a(base_a, min(row + 1u, last), word);
      let a2 = words_a(base_a, min(row + 2u, last), word);
      let a3 = words_a(base_a, min(row + 3u, last), word);
      for (var c = 0u; c < 4u; c++) {
        let left = vec4<u32>(a0[c], a1[c], a2[c], a3[c]);
        let right = columns_b(base_b, word + c, n);
        //#unroll
        for (var r = 0u; r < 4u; r++) {
          sums[r] += vec4<i32>(
            dot4(left[r], right[0]), dot4(left[r], right[1]), dot4(left[r], right[2]), dot4(left[r], right[3]));
        }
        totals += vec4<i32>(dot4(left[0], ONES), dot4(left[1], ONES), dot4(left[2], ONES), dot4(left[3], ONES));
        columns += vec4<i32>(dot4(right[0], ONES), dot4(right[1], ONES), dot4(right[2], ONES), dot4(right[3], ONES));
      }
    }
    columns -= i32(params.k) * zero_b;
    if (n >= params.n) { continue; }
    // `finish` is there once, in a loop whose count compilers do not know.
    let rows = min(4u, max(params.m, row) - row);
    for (var r = 0u; r < rows; r++) {
      var sum = sums[0];
//#if CENTRED_A
      sum -= zero_a(row + r) * columns;
//#endif
//#if CENTRED_B
      sum -= totals[0] * zero_b;
//#endif
      put(first.x * params.m + row + r, n, sum);
      sums[0] = sums[1];
      sums[1] = sums[2];
      sums[2] = sums[3];
      totals = totals.yzww;
    }
  }
}
