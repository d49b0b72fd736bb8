// f32 to 32-bit integers: truncated toward zero; NaN and what does not fit as x86 has it.
fn i32_of_f32(x: f32) -> i32 {
  let body = bitcast<u32>(x) & 0x7fffffffu;
  if (body >= 0x4f000000u) { return -2147483647 - 1; }
  return i32(x);
}

// Below 2^31 the bits of i32_of_f32, from 2^32 on 0.
fn u32_of_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if (bits >= 0x4f800000u && bits <= 0x7f800000u) { return 0u; }
  if (bits >= 0x4f000000u && bits < 0x4f800000u) { return ((bits & 0x7fffffu) | 0x800000u) << 8u; }
  return bitcast<u32>(i32_of_f32(x));
}

fn f32_is_zero(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) == 0u;
}

// The integer nearest to q, ties to even, moved by `zero` and saturated; NaN gives `low`.
fn quantize(q: f32, zero: f32, low: f32, high: f32) -> f32 {
  if (is_nan(q)) { return low; }
  return clamp(round(q) + zero, low, high);
}
