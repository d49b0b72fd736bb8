// Members of params that all kernels of attention have.
  q_strides: vec4<u32>,
  k_strides: vec4<u32>,
  v_strides: vec4<u32>,
  y_strides: vec4<u32>,
  mask_strides: vec4<u32>,
  bases: vec4<u32>,       // of q, k, v, y
  reach: vec4<i32>,       // position of the first query, keys seen before and after a query, what `lengths` lack
  queries: u32,
  keys: u32,
  heads: u32,
  group: u32,             // heads of q that share one of k and v
