// Parameters and operands of a tiled product of float16, and where what only the optimized entry point uses begins.
struct Params {
//#include matmul_tile_fields
  channels: u32,
}

//#if !SPLIT
//#include finish_quad
//#endif

//#include batch_base

//#include half_quads t=a m=m arguments="m: u32, k: u32" along=TRANS_A vec=VEC_A
//#include half_quads t=b m=n arguments="k: u32, n: u32" along=!TRANS_B vec=VEC_B

//#include optimized
