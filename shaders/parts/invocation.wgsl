// The entry point of invocations that have job `$job` of `params.$jobs` each, in workgroups of `$size`.
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let $job = global_index(gid, nwg, $size);
  if ($job >= params.$jobs) { return; }
