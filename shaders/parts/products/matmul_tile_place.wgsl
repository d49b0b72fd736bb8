// Which share of k, which place of a tile and which tile an invocation has.
  let slice = local / THREADS;
  let t = local % THREADS;
  let block = t / 32u;
  let tx = block % (WIDE / 8u) * 8u + t % 8u;
  let ty = block / (WIDE / 8u) * 4u + t % 32u / 8u;
  let plane = group / (params.m_tiles * params.n_tiles);
  let tile = group - plane * (params.m_tiles * params.n_tiles);
  let m0 = (tile / params.n_tiles) * TILE_M;
  let n0 = (tile % params.n_tiles) * TILE_N;
//#if SPLIT
  let split = plane / params.batches;
  let batch = plane - split * params.batches;
  let first = split * params.steps * SLICES + slice;
//#else
  let batch = plane;
  let first = slice;
//#endif
  let base_a = batch_base(batch, params.a_strides);
  let base_b = batch_base(batch, params.b_strides);
