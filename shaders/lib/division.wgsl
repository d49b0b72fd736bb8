// Quotients and remainders of f32, exact or rounded once.

// x - trunc(x / y) * y without rounding: the remainder of the integer mantissas, eight bits of quotient at a time.
fn remainder_truncated(x: f32, y: f32) -> f32 {
  let body = bitcast<u32>(x) & 0x7fffffffu;
  let other = bitcast<u32>(y) & 0x7fffffffu;
  if (body >= 0x7f800000u || other > 0x7f800000u || other == 0u) { return f32_nan(body); }
  if (body < other) { return x; }
  var e = max(body >> 23u, 1u);
  let stop = max(other >> 23u, 1u);
  let divisor = select(other & 0x7fffffu, (other & 0x7fffffu) | 0x800000u, other >= 0x800000u);
  var rest = select(body & 0x7fffffu, (body & 0x7fffffu) | 0x800000u, body >= 0x800000u) % divisor;
  for (var i = 0u; i < 33u; i++) {
    if (e == stop) { break; }
    let step = min(e - stop, 8u);
    rest = (rest << step) % divisor;
    e -= step;
  }
  var bits = 0u;
  if (rest != 0u) {
    let shift = min(countLeadingZeros(rest) - 8u, stop - 1u);
    rest <<= shift;
    bits = select(rest, ((stop - shift) << 23u) | (rest & 0x7fffffu), rest >= 0x800000u);
  }
  return bitcast<f32>(bits | (bitcast<u32>(x) & 0x80000000u));
}

// x - floor(x / y) * y: the sign of y, signed zeros included.
fn remainder_floored(x: f32, y: f32) -> f32 {
  let r = remainder_truncated(x, y);
  if ((bitcast<u32>(r) & 0x7fffffffu) == 0u) { return copy_sign(0.0, y); }
  if (is_negative(r) != is_negative(y) && !is_nan(r)) { return r + y; }
  return r;
}

// x / y rounded to nearest even, where WGSL's own division may be 2.5 units off: integer division of the mantissas.
fn divide_rounded(x: f32, y: f32) -> f32 {
  let a = bitcast<u32>(x) & 0x7fffffffu;
  let b = bitcast<u32>(y) & 0x7fffffffu;
  let exponent = i32(a >> 23u) - i32(b >> 23u) + 127;
  let normal = a >= 0x800000u && a < 0x7f800000u && b >= 0x800000u && b < 0x7f800000u;
  if (!normal || exponent < 2 || exponent > 253) { return x / y; }
  let divisor = (b & 0x7fffffu) | 0x800000u;
  var rest = (a & 0x7fffffu) | 0x800000u;
  var quotient = rest / divisor;
  rest -= quotient * divisor;
  for (var i = 0u; i < 3u; i++) {
    rest <<= 8u;
    let digit = rest / divisor;
    quotient = (quotient << 8u) | digit;
    rest -= digit * divisor;
  }
  // 25 or 26 significant bits after two more: 24 to keep, the others and the remainder to round with.
  rest <<= 2u;
  let digit = rest / divisor;
  quotient = (quotient << 2u) | digit;
  rest -= digit * divisor;
  let drop = 8u - countLeadingZeros(quotient);
  let kept = quotient >> drop;
  let half = 1u << (drop - 1u);
  let tail = quotient & (2u * half - 1u);
  let up = u32(tail > half || (tail == half && (rest != 0u || (kept & 1u) == 1u)));
  let power = u32(exponent + i32(drop) - 3) << 23u;
  return bitcast<f32>((power + (kept - 0x800000u) + up) | ((bitcast<u32>(x) ^ bitcast<u32>(y)) & 0x80000000u));
}

// A number that rounds to the same integer as x / y does where that is rounded to nearest: x / y as the device has it, which
// may be 2.5 units in the last place off, but for what lies that near to a half.
fn near_quotient(x: f32, y: f32) -> f32 {
  let q = x / y;
  if (abs(q) < 512.0 && abs(abs(q - round(q)) - 0.5) > 0.0002) { return q; }
  return divide_rounded(x, y);
}
