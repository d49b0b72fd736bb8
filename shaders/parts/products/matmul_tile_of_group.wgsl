// The tile of a workgroup, its matrices, and its first step along k; SLICES sets of invocations share the steps.
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
