// The beginning of a product of few rows: the batch and the columns of a workgroup.
//#include workgroup name=main place=lane
  let group = workgroup_index(wid, nwg);
  if (group >= params.groups) { return; }
  let batch = group / params.blocks;
  let block = group - batch * params.blocks;
  let base_a = batch_base(batch, params.a_strides);
  let base_b = batch_base(batch, params.b_strides);
