// y[at(indices[i])] = x[i]; y holds zeros before. Where several indices are equal one of their values remains.
//#tensors x, indices -> y
//#variants x=float indices=int64 | x=float16 indices=int64
struct Params {
  block: vec4<u32>,     // what indices count in: depth, height, width; their product
  strides: vec4<u32>,   // of y: channel, depth, height, width
  size: u32,            // elements of x
  total: u32,           // elements indices may name
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = global_index(gid, nwg, 64u);
  if (i >= params.size) { return; }
  let index = load_indices(i);
  if (index.y != 0u || index.x >= params.total) { return; }
  let line = index.x / params.block.z;
  let at = vec4<u32>(
    index.x / params.block.w,
    (line / params.block.y) % params.block.x,
    line % params.block.y,
    index.x % params.block.z,
  );
  let place = at * params.strides;
  store_y(place.x + place.y + place.z + place.w, load_x(i));
}
