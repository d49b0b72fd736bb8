// Sizes of a tile, of its parts in workgroup memory, and of what an invocation makes of it.
const TILE_M: u32 = 32u;
const TILE_N: u32 = 32u;
const TILE_K: u32 = 16u;
const ROWS: u32 = 4u;
const QUADS: u32 = 1u;
const SLICES: u32 = 1u;

const WIDE: u32 = TILE_N / (4u * QUADS);
const HIGH: u32 = TILE_M / ROWS;
const THREADS: u32 = WIDE * HIGH;
//#if K_MAJOR
const A_PITCH: u32 = TILE_M / 4u + 1u;
const A_SIZE: u32 = TILE_K * A_PITCH;
//#else
const A_PITCH: u32 = TILE_K / 4u + 1u;
const A_SIZE: u32 = TILE_M * A_PITCH;
//#endif
const B_PITCH: u32 = TILE_N / 4u;
const B_SIZE: u32 = TILE_K * B_PITCH;
const RESULTS: u32 = ROWS * QUADS;
const MOVES_A: u32 = TILE_M * TILE_K / (4u * THREADS);
const MOVES_B: u32 = TILE_N * TILE_K / (4u * THREADS);
