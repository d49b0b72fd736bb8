// Sizes of a tile of results, and what an invocation makes of it: ROWS rows of QUADS vec4s.
const TILE_M: u32 = 32u;
const TILE_N: u32 = 32u;
const ROWS: u32 = 4u;
const QUADS: u32 = 1u;
const SLICES: u32 = 1u;

const WIDE: u32 = TILE_N / (4u * QUADS);
const HIGH: u32 = TILE_M / ROWS;
const THREADS: u32 = WIDE * HIGH;
const RESULTS: u32 = ROWS * QUADS;
