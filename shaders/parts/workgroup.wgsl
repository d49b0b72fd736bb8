// The entry point `$name`, of which a workgroup knows its number and an invocation its place in that.
fn $name(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) $place: u32,
) {
