// y[b, m, n] = finish(sum over k of a[b, m, k] * w[b, k, n]), as matmul_tiled.wgsl, of packed weights w.
//
// b is n rows of weights of BITS bits in blocks of BLOCK, with scales and ZEROS or FLOAT_ZEROS, as matmul_nbits_skinny.wgsl
// has them; GROUPED: `group_of` says which scale k has. CODES: of NF4 or FP4, in blocks over all of b.
//#tensors a, b, scales, zeros, group_of -> y
//#type T = y
//#include matmul_tile_sizes
const BITS: u32 = 4u;
const BLOCK: u32 = 32u;
const MASK: u32 = (1u << BITS) - 1u;

struct Params {
//#include matmul_tile_fields
  b_words: u32,
  b_blocks: u32,
  zero_pitch: u32,
}

//#if !SPLIT
//#include finish_quad
//#endif

//#include batch_base

//#include matmul_quads t=a m=m arguments="m: u32, k: u32" along=TRANS_A vec=VEC_A shifted=ZERO_A zero=a_zero stride=a_zero_stride
//#include nbits_quads

//#include matmul_tile

//#include matmul_tile_put
