// Members of params of the tiled products.
  m: u32,
  n: u32,
  k: u32,
  steps: u32,
  m_tiles: u32,
  n_tiles: u32,
  batches: u32,
  groups: u32,
//#include batch_fields
