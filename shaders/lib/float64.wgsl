// Conversions of float64, stored as vec2<u32>(low, high). No arithmetic: that is the host's.

// binary64 to binary32. The 29 bits dropped round to nearest even, or (`odd`) into the last bit, so that a second
// rounding to a narrower type is the only one.
fn f64_narrow(a: vec2<u32>, odd: bool) -> f32 {
  let sign = a.y & 0x80000000u;
  let exponent = (a.y >> 20u) & 0x7ffu;
  let top = ((a.y & 0xfffffu) << 3u) | (a.x >> 29u);
  let sticky = u32((a.x & 0x1fffffffu) != 0u);
  if (exponent == 0x7ffu) { return bitcast<f32>(sign | 0x7f800000u | (u32((top | sticky) != 0u) << 22u)); }
  if (exponent < 872u) { return bitcast<f32>(sign | select(0u, 1u, odd && (exponent | top | sticky) != 0u)); }
  // 26 bits: 24 to keep, one to round with, one that says whether anything follows.
  var whole = ((top | 0x800000u) << 2u) | (((a.x >> 28u) & 1u) << 1u) | u32((a.x & 0xfffffffu) != 0u);
  var body = 0u;
  if (exponent > 896u) {
    body = min(exponent - 897u, 0xffu) << 23u;
  } else {
    let shift = 897u - exponent;
    whole = (whole >> shift) | u32((whole & ((1u << shift) - 1u)) != 0u);
  }
  let kept = whole >> 2u;
  let tail = whole & 3u;
  let up = select(u32(tail > 2u || (tail == 2u && (kept & 1u) == 1u)), u32(tail != 0u) & ~kept, odd);
  body = select(body + kept + up, 0x7f7fffffu + u32(!odd), exponent > 1150u);
  return bitcast<f32>(sign | min(body, 0x7f800000u));
}

fn f32_of_f64(a: vec2<u32>) -> f32 {
  return f64_narrow(a, false);
}

fn f64_of_f32(x: f32) -> vec2<u32> {
  let bits = bitcast<u32>(x);
  let sign = bits & 0x80000000u;
  var body = bits & 0x7fffffffu;
  if (body >= 0x7f800000u) { return vec2<u32>(body << 29u, sign | 0x7ff00000u | ((body & 0x7fffffu) >> 3u)); }
  if (body == 0u) { return vec2<u32>(0u, sign); }
  var exponent = (body >> 23u) + 896u;
  if (body < 0x800000u) {
    let shift = countLeadingZeros(body) - 8u;
    body = body << shift;
    exponent = 897u - shift;
  }
  return vec2<u32>(body << 29u, sign | (exponent << 20u) | ((body & 0x7fffffu) >> 3u));
}

// Nearest, ties to even.
fn f64_of_u64(a: vec2<u32>) -> vec2<u32> {
  if ((a.x | a.y) == 0u) { return a; }
  let zeros = select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
  let whole = u64_shl(a, zeros);
  // 53 bits to keep of 64; the carry of rounding may run into the exponent, as it should.
  let tail = whole.x & 0x7ffu;
  let kept = u64_shr(whole, 11u);
  let up = u32(tail > 0x400u || (tail == 0x400u && (kept.x & 1u) == 1u));
  return i64_add(vec2<u32>(kept.x, kept.y + ((1085u - zeros) << 20u)), vec2<u32>(up, 0u));
}

fn f64_of_i64(a: vec2<u32>) -> vec2<u32> {
  let magnitude = f64_of_u64(i64_abs(a));
  return vec2<u32>(magnitude.x, magnitude.y | (a.y & 0x80000000u));
}

// |a| truncated, modulo 2^64, for |a| < 2^64.
fn f64_magnitude(a: vec2<u32>) -> vec2<u32> {
  let exponent = (a.y >> 20u) & 0x7ffu;
  if (exponent < 1023u) { return vec2<u32>(0u, 0u); }
  let mantissa = vec2<u32>(a.x, (a.y & 0xfffffu) | 0x100000u);
  if (exponent >= 1075u) { return u64_shl(mantissa, exponent - 1075u); }
  return u64_shr(mantissa, 1075u - exponent);
}

// Truncated toward zero; NaN and what does not fit give -2^63, as x86 has it.
fn i64_of_f64(a: vec2<u32>) -> vec2<u32> {
  if ((a.y & 0x7fffffffu) >= 0x43e00000u) { return vec2<u32>(0u, 0x80000000u); }
  let magnitude = f64_magnitude(a);
  if ((a.y >> 31u) == 1u) { return i64_neg(magnitude); }
  return magnitude;
}

// Truncated toward zero; below 2^63 as i64_of_f64, from 2^64 on 0.
fn u64_of_f64(a: vec2<u32>) -> vec2<u32> {
  let nan_or_negative = a.y > 0x7ff00000u || (a.y == 0x7ff00000u && a.x != 0u);
  if (a.y < 0x43e00000u || nan_or_negative) { return i64_of_f64(a); }
  if (a.y >= 0x43f00000u) { return vec2<u32>(0u, 0u); }
  return f64_magnitude(a);
}

fn i32_of_f64(a: vec2<u32>) -> i32 {
  let value = i64_of_f64(a);
  return select(-2147483647 - 1, i64_low(value), i64_eq(value, i64_of_i32(i64_low(value))));
}

fn u32_of_f64(a: vec2<u32>) -> u32 {
  let nan_or_negative = a.y > 0x7ff00000u || (a.y == 0x7ff00000u && a.x != 0u);
  if (a.y < 0x41e00000u || nan_or_negative) { return bitcast<u32>(i32_of_f64(a)); }
  return select(0u, f64_magnitude(a).x, a.y < 0x41f00000u);
}

fn f64_is_zero(a: vec2<u32>) -> bool {
  return (a.x | (a.y & 0x7fffffffu)) == 0u;
}
