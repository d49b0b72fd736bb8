// What the LANES invocations of a row have folded, as `total`, known to all of them. `place`: of an invocation in its workgroup.
//#if SUBGROUP
  let total = reduced_for_all(fold(base, lane, LANES), place);
//#elif SHARED
  parts[place] = fold(base, lane, LANES);
  workgroupBarrier();
  for (var level = 1u; level <= firstTrailingBit(LANES); level++) {
    let step = LANES >> level;
    if (lane < step) { parts[place] = $combine(parts[place], parts[place + step]); }
    workgroupBarrier();
  }
  let total = parts[place - lane];
//#else
  if (row >= params.rows) { return; }
  let total = fold(base, lane, LANES);
//#endif
