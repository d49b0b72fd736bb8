// The beginning of a skinny product: the batch and the columns of a workgroup.
//#include numbered_workgroup name=main place=lane number=group count=params.groups
  let batch = group / params.blocks;
  let block = group - batch * params.blocks;
  let base_a = batch_base(batch, params.a_strides);
  let base_b = batch_base(batch, params.b_strides);
