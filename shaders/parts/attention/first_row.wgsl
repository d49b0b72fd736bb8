// The first new row of a cache: `$first`, unless tensors say it.
fn first_of(batch: u32) -> i32 {
  var first = $first;
//#if LENGTHS
  first = load_lengths(batch) + params.lacking - i32(params.rows);
//#endif
//#if PROMPT
  if (load_prompt(0u) == params.queries) { first = 0; }
//#endif
  return first;
}
