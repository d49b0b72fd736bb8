// Sizes of a tile, of its parts in workgroup memory, and of what an invocation makes of it.
//#include matmul_tile_shape
const TILE_K: u32 = 16u;
//#if K_MAJOR
const A_PITCH: u32 = TILE_M / 4u + 1u;
const A_SIZE: u32 = TILE_K * A_PITCH;
//#else
const A_PITCH: u32 = TILE_K / 4u + 1u;
const A_SIZE: u32 = TILE_M * A_PITCH;
//#endif
const B_PITCH: u32 = TILE_N / 4u;
const B_SIZE: u32 = TILE_K * B_PITCH;
const MOVES_A: u32 = TILE_M * TILE_K / (4u * THREADS);
const MOVES_B: u32 = TILE_N * TILE_K / (4u * THREADS);
