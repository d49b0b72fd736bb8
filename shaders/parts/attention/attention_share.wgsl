//#if !SPLIT
// What the weighted sum of values is multiplied with: `top` and `sum` are the maximum and the divisor of its scores.
fn share_of(top: f32, sum: f32, head: u32) -> f32 {
  var share = 1.0;
  var whole = sum;
//#if SINK
  let sink = load_sink(head);
  let highest = max(top, sink);
  share = exp(top - highest);
  whole = whole * share + exp(sink - highest);
//#endif
//#if EMPTY_ZERO
  return share * select(1.0 / whole, 0.0, whole == 0.0);
//#else
  return share / whole;
//#endif
}
//#endif
