// Keys whose unsigned order is the order of the numbers; NaN comes last, zeros of both signs are equal.
fn sort_key_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if (is_nan(x)) { return 0xffffffffu; }
  if ((bits & 0x7fffffffu) == 0u) { return 0x80000000u; }
  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

fn sort_key_i32(x: i32) -> u32 {
  return bitcast<u32>(x) ^ 0x80000000u;
}

fn sort_key_i64(x: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(x.x, x.y ^ 0x80000000u);
}

// True where the pair (key, index) a comes before b: greater key first, then the lower index.
fn sorts_before_32(a: u32, ia: u32, b: u32, ib: u32) -> bool {
  return a > b || (a == b && ia < ib);
}

fn sorts_before_64(a: vec2<u32>, ia: u32, b: vec2<u32>, ib: u32) -> bool {
  return u64_lt(b, a) || (i64_eq(a, b) && ia < ib);
}
