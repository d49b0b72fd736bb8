// Members of params that say what a convolution slides over.
  input: vec4<u32>,     // depth, height, width; channels of all groups
  output: vec4<u32>,    // depth, height, width; their product
  strides: vec4<i32>,
  dilations: vec4<u32>,
  pads: vec4<i32>,
