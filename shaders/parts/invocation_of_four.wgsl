// The entry point of invocations that make four neighbouring elements each: the numbers of group `g` are `i`.
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let g = global_index(gid, nwg, 64u);
  if (g * 4u >= params.size) { return; }
  let i = group_of_four(g, params.size);
