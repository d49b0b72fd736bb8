// The entry point as far as an invocation knows its row and which of the LANES of that row it is.
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) place: u32,
) {
  let first_row = workgroup_index(wid, nwg) * (WG / LANES);
  if (first_row >= params.rows) { return; }
  let row = first_row + place / LANES;
  let lane = place % LANES;
