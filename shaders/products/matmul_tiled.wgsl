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
// ZERO_A, ZERO_B: zero points, one for all or one a row of a and a column of b. BIAS: added to a row, where rows are
// output channels of a convolution. FALLBACK: `kernels/ir/fallback.py`.
//#tensors a, b, a_zero, b_zero, bias -> y
//#type T = y
//#include matmul_tile_sizes

struct Params {
//#include matmul_tile_fields
  a_zero_stride: u32,
  b_zero_stride: u32,
  channels: u32,
}

//#if !SPLIT
//#include finish_quad
//#endif

//#include batch_base

//#include matmul_quads t=a m=m arguments="m: u32, k: u32" along=TRANS_A vec=VEC_A shifted=ZERO_A zero=a_zero stride=a_zero_stride
//#include matmul_quads t=b m=n arguments="k: u32, n: u32" along=!TRANS_B vec=VEC_B shifted=ZERO_B zero=b_zero stride=b_zero_stride

//#include optimized
//#include matmul_tile

//#include matmul_tiled_fallback
//#include matmul_tile_put
