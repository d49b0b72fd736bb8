// The entry point as far as an invocation knows its row and which of the LANES of that row it is.
@compute @workgroup_size(WG)
//#include workgroup name=main place=place
  let first_row = workgroup_index(wid, nwg) * (WG / LANES);
  if (first_row >= params.rows) { return; }
  let row = first_row + place / LANES;
  let lane = place % LANES;
