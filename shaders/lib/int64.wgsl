// 64-bit integers as vec2<u32>(low, high), two's complement; exact modulo 2^64 like the host's.
fn i64_of_i32(x: i32) -> vec2<u32> {
  return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u));
}

fn u64_of_u32(x: u32) -> vec2<u32> {
  return vec2<u32>(x, 0u);
}

fn i64_low(x: vec2<u32>) -> i32 {
  return bitcast<i32>(x.x);
}

// As 32 bits; beyond them the nearest end.
fn i64_saturate(x: vec2<u32>) -> i32 {
  let low = bitcast<i32>(x.x);
  if (bitcast<i32>(x.y) == (low >> 31u)) { return low; }
  return select(0x7fffffff, -0x7fffffff - 1, (x.y >> 31u) == 1u);
}

// As i32; beyond it the greatest one.
fn u64_saturate(x: vec2<u32>) -> i32 {
  if (x.y != 0u || x.x > 0x7fffffffu) { return 0x7fffffff; }
  return i32(x.x);
}

fn i64_neg(a: vec2<u32>) -> vec2<u32> {
  let low = ~a.x + 1u;
  return vec2<u32>(low, ~a.y + u32(low == 0u));
}

fn i64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + u32(low < a.x));
}

fn i64_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}

// 32 x 32 -> 64 bits by 16-bit halves.
fn u32_mul_wide(a: u32, b: u32) -> vec2<u32> {
  let al = a & 0xffffu;
  let ah = a >> 16u;
  let bl = b & 0xffffu;
  let bh = b >> 16u;
  let ll = al * bl;
  let lh = al * bh;
  let hl = ah * bl;
  let mid = (ll >> 16u) + (lh & 0xffffu) + (hl & 0xffffu);
  return vec2<u32>((ll & 0xffffu) | (mid << 16u), ah * bh + (lh >> 16u) + (hl >> 16u) + (mid >> 16u));
}

fn i64_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let wide = u32_mul_wide(a.x, b.x);
  return vec2<u32>(wide.x, wide.y + a.x * b.y + a.y * b.x);
}

fn i64_eq(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.x == b.x && a.y == b.y;
}

fn u64_lt(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn i64_lt(a: vec2<u32>, b: vec2<u32>) -> bool {
  let ah = bitcast<i32>(a.y);
  let bh = bitcast<i32>(b.y);
  return ah < bh || (ah == bh && a.x < b.x);
}

fn i64_abs(a: vec2<u32>) -> vec2<u32> {
  if ((a.y >> 31u) == 1u) { return i64_neg(a); }
  return a;
}

fn u64_shl(a: vec2<u32>, n: u32) -> vec2<u32> {
  if (n >= 64u) { return vec2<u32>(0u, 0u); }
  if (n >= 32u) { return vec2<u32>(0u, a.x << (n - 32u)); }
  if (n == 0u) { return a; }
  return vec2<u32>(a.x << n, (a.y << n) | (a.x >> (32u - n)));
}

fn u64_shr(a: vec2<u32>, n: u32) -> vec2<u32> {
  if (n >= 64u) { return vec2<u32>(0u, 0u); }
  if (n >= 32u) { return vec2<u32>(a.y >> (n - 32u), 0u); }
  if (n == 0u) { return a; }
  return vec2<u32>((a.x >> n) | (a.y << (32u - n)), a.y >> n);
}

// Quotient (xy) and remainder (zw) by schoolbook shift and subtract; x / 0 = 0 remainder x.
fn u64_divmod(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  if (b.x == 0u && b.y == 0u) { return vec4<u32>(0u, 0u, a); }
  if (a.y == 0u && b.y == 0u) { return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u); }
  var quotient = vec2<u32>(0u, 0u);
  var rest = vec2<u32>(0u, 0u);
  for (var n = 0u; n < 64u; n++) {
    let bit = 63u - n;
    let carry = rest.y >> 31u;
    rest = u64_shl(rest, 1u);
    rest.x |= u64_shr(a, bit).x & 1u;
    if (carry == 1u || !u64_lt(rest, b)) {
      rest = i64_sub(rest, b);
      if (bit >= 32u) { quotient.y |= 1u << (bit - 32u); } else { quotient.x |= 1u << bit; }
    }
  }
  return vec4<u32>(quotient, rest);
}

// Truncated toward zero, as C.
fn i64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let q = u64_divmod(i64_abs(a), i64_abs(b)).xy;
  if (((a.y ^ b.y) >> 31u) == 1u) { return i64_neg(q); }
  return q;
}

// Remainder with the sign of the dividend, as C.
fn i64_rem(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let r = u64_divmod(i64_abs(a), i64_abs(b)).zw;
  if ((a.y >> 31u) == 1u) { return i64_neg(r); }
  return r;
}

fn u64_to_f32(a: vec2<u32>) -> f32 {
  if (a.y == 0u) { return f32(a.x); }
  // Keep 24 significant bits and a sticky bit so that the one rounding is to nearest even.
  let shift = 32u - countLeadingZeros(a.y);
  var top = u64_shr(a, shift).x;
  if (u64_shl(a, 64u - shift).y != 0u || u64_shl(a, 64u - shift).x != 0u) { top |= 1u; }
  return ldexp(f32(top), i32(shift));
}

fn i64_to_f32(a: vec2<u32>) -> f32 {
  if ((a.y >> 31u) == 1u) { return -u64_to_f32(i64_neg(a)); }
  return u64_to_f32(a);
}

// Truncated toward zero; NaN and what does not fit give -2^63, as x86 has it.
fn i64_of_f32(x: f32) -> vec2<u32> {
  let bits = bitcast<u32>(x);
  let body = bits & 0x7fffffffu;
  if (body >= 0x5f000000u) { return vec2<u32>(0u, 0x80000000u); }
  if (body < 0x3f800000u) { return vec2<u32>(0u, 0u); }
  let exponent = body >> 23u;
  let mantissa = vec2<u32>((body & 0x7fffffu) | 0x800000u, 0u);
  let value = select(u64_shr(mantissa, 150u - exponent), u64_shl(mantissa, exponent - 150u), exponent >= 150u);
  if ((bits >> 31u) == 1u) { return i64_neg(value); }
  return value;
}

// Truncated toward zero; below 2^63 as i64_of_f32, from 2^64 on 0.
fn u64_of_f32(x: f32) -> vec2<u32> {
  let bits = bitcast<u32>(x);
  if (bits < 0x5f000000u || bits > 0x7f800000u) { return i64_of_f32(x); }
  if (bits >= 0x5f800000u) { return vec2<u32>(0u, 0u); }
  return vec2<u32>(0u, ((bits & 0x7fffffu) | 0x800000u) << 8u);
}

fn i64_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, i64_lt(a, b));
}

fn i64_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, i64_lt(b, a));
}

fn u64_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, u64_lt(a, b));
}

fn u64_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, u64_lt(b, a));
}

fn i64_sign(a: vec2<u32>) -> vec2<u32> {
  if ((a.y >> 31u) == 1u) { return vec2<u32>(0xffffffffu, 0xffffffffu); }
  return u64_sign(a);
}

fn u64_sign(a: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(u32((a.x | a.y) != 0u), 0u);
}

fn i64_relu(a: vec2<u32>) -> vec2<u32> {
  return select(a, vec2<u32>(0u, 0u), (a.y >> 31u) == 1u);
}

fn u64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return u64_divmod(a, b).xy;
}

// x mod 0 = 0, as NumPy.
fn u64_mod(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (b.x == 0u && b.y == 0u) { return b; }
  return u64_divmod(a, b).zw;
}

// Remainder with the sign of the dividend; 0 for b = 0.
fn i64_fmod(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (b.x == 0u && b.y == 0u) { return b; }
  return i64_rem(a, b);
}

// Remainder with the sign of the divisor; 0 for b = 0.
fn i64_mod(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let r = i64_fmod(a, b);
  if ((r.x | r.y) != 0u && ((r.y ^ b.y) >> 31u) == 1u) { return i64_add(r, b); }
  return r;
}

// Arithmetic shift to the right; n >= 64 leaves copies of the sign.
fn i64_shr(a: vec2<u32>, n: u32) -> vec2<u32> {
  let high = bitcast<i32>(a.y);
  if (n >= 32u) { return vec2<u32>(bitcast<u32>(high >> min(n - 32u, 31u)), bitcast<u32>(high >> 31u)); }
  if (n == 0u) { return a; }
  return vec2<u32>((a.x >> n) | (a.y << (32u - n)), bitcast<u32>(high >> n));
}

// A 64-bit shift count as 32 bits: anything from 2^32 on (negative ones too) shifts everything out.
fn u64_shift_count(n: vec2<u32>) -> u32 {
  return select(n.x, 64u, n.y != 0u);
}

// x^n modulo 2^64.
fn u64_pow(x: vec2<u32>, n: vec2<u32>) -> vec2<u32> {
  var r = vec2<u32>(1u, 0u);
  var square = x;
  var left = n;
  for (var i = 0u; i < 64u; i++) {
    if ((left.x | left.y) == 0u) { break; }
    if ((left.x & 1u) == 1u) { r = i64_mul(r, square); }
    square = i64_mul(square, square);
    left = u64_shr(left, 1u);
  }
  return r;
}

// x^n modulo 2^64; a negative power is 0 unless x is 1 or -1.
fn i64_pow(x: vec2<u32>, n: vec2<u32>) -> vec2<u32> {
  if ((n.y >> 31u) == 0u) { return u64_pow(x, n); }
  if (i64_eq(x, vec2<u32>(1u, 0u))) { return x; }
  if (i64_eq(x, vec2<u32>(0xffffffffu, 0xffffffffu))) { return u64_pow(x, n & vec2<u32>(1u, 0u)); }
  return vec2<u32>(0u, 0u);
}
