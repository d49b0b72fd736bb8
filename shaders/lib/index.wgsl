// The number of this invocation in a grid folded by Target.grid: x first, then y, then z.
fn global_index(gid: vec3<u32>, nwg: vec3<u32>, workgroup: u32) -> u32 {
  return gid.x + (gid.y + gid.z * nwg.y) * (nwg.x * workgroup);
}

// The number of this workgroup in a folded grid.
fn workgroup_index(wid: vec3<u32>, nwg: vec3<u32>) -> u32 {
  return wid.x + (wid.y + wid.z * nwg.y) * nwg.x;
}
