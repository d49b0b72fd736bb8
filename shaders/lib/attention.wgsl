// The keys [x, y) a query sees: those below `length` that lie at most `reach.x` before its position and `reach.y`
// after it; a negative reach is endless.
fn keys_in_reach(position: i32, length: i32, reach: vec2<i32>) -> vec2<u32> {
  let first = select(max(0, position - reach.x), 0, reach.x < 0);
  let end = select(min(length, position + reach.y + 1), length, reach.y < 0);
  return vec2<u32>(u32(min(first, max(end, 0))), u32(max(end, 0)));
}

// cap * tanh(x / cap); short, because it stands in loops written out.
fn capped(x: f32, cap: f32) -> f32 {
  let t = exp(-2.0 * abs(x) / cap);
  return sign(x) * cap * ((1.0 - t) / (1.0 + t));
}

fn capped_quad(x: vec4<f32>, cap: f32) -> vec4<f32> {
  let t = exp(-2.0 * abs(x) / cap);
  return sign(x) * cap * ((1.0 - t) / (1.0 + t));
}
