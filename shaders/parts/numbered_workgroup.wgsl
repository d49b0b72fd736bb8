// The entry point `$name`, of which a workgroup knows its `$number`, below `$count`, and an invocation its place in that.
//#include workgroup name=$name place=$place
  let $number = workgroup_index(wid, nwg);
  if ($number >= $count) { return; }
