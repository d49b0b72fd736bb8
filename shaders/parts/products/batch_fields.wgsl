// Members of params that `batch_base` reads.
  batch: vec4<u32>,
  a_strides: vec4<u32>,
  b_strides: vec4<u32>,
