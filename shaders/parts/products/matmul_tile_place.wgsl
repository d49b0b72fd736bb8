// Which share of k, which place of a tile and which tile an invocation has.
  let slice = local / THREADS;
  let t = local % THREADS;
  let block = t / 32u;
  let tx = block % (WIDE / 8u) * 8u + t % 8u;
  let ty = block / (WIDE / 8u) * 4u + t % 32u / 8u;
//#include matmul_tile_of_group
