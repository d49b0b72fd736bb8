// Elementary functions of f32 to a few units in the last place. WGSL's own promise much less (sin and cos 2^-11, atan
// 4096 units), overflow inside (tanh), or do not exist. The polynomials are minimax fits: tools/fit_math.py.
// Branches on NaN and infinity are made by bits or such that both sides give the right answer.

fn f32_nan(seed: u32) -> f32 {
  return f32_bits(0x7fc00000u, seed);
}

// `magnitude` with the sign of `x`, by bits.
fn copy_sign(magnitude: f32, x: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(magnitude) & 0x7fffffffu) | (bitcast<u32>(x) & 0x80000000u));
}

// x * 2^n for -252 <= n <= 254.
fn scale_by_power(x: f32, n: i32) -> f32 {
  let half = n >> 1u;
  return x * bitcast<f32>(u32(half + 127) << 23u) * bitcast<f32>(u32(n - half + 127) << 23u);
}

// (m, e) with |x| = m * 2^e and m in [sqrt(1/2), sqrt(2)), for finite x other than 0; subnormals by integer arithmetic.
fn split_exponent(x: f32) -> vec2<f32> {
  var body = bitcast<u32>(x) & 0x7fffffffu;
  var e = i32(body >> 23u) - 127;
  if (e == -127) {
    let shift = countLeadingZeros(body) - 8u;
    body = body << shift;
    e = -126 - i32(shift);
  }
  let m = bitcast<f32>((body & 0x7fffffu) | 0x3f800000u);
  if (m > 1.4142135) { return vec2<f32>(m * 0.5, f32(e + 1)); }
  return vec2<f32>(m, f32(e));
}

// 2 atanh(s) for |s| <= 0.1716 = (sqrt(2) - 1) / (sqrt(2) + 1).
fn twice_atanh(s: f32) -> f32 {
  let z = s * s;
  return 2.0 * s + s * z * (((0.23581921 * z + 0.28537324) * z + 0.40000334) * z + 0.66666663);
}

fn natural_log(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) == 0u) { return f32_bits(0xff800000u, bits); }
  if (bits == 0x7f800000u) { return x; }
  if (bits > 0x7f800000u) { return f32_nan(bits); }
  let split = split_exponent(x);
  let f = split.x - 1.0;
  return split.y * 0.693145751953125 + (split.y * 1.4286068e-6 + twice_atanh(f / (2.0 + f)));
}

fn log1p(x: f32) -> f32 {
  if (x > -0.2928932 && x < 0.41421354) { return twice_atanh(x / (2.0 + x)); }
  return natural_log(1.0 + x);
}

// NaN stays NaN (not every compiler's exp does that), and large arguments cost no accuracy.
fn exponential(x: f32) -> f32 {
  let a = clamp(x, -104.0, 89.0);
  let n = round(a * 1.442695);
  let r = fma(-n, 1.4286068e-6, fma(-n, 0.693145751953125, a));
  let p = ((1.3814433e-3 * r + 8.3687967e-3) * r + 0.041668396) * r + 0.1666652;
  return select(scale_by_power(1.0 + (r + r * r * (p * r + 0.49999994)), i32(n)), x, is_nan(x));
}

fn expm1(x: f32) -> f32 {
  if (abs(x) < 1.0) {
    var p = 2.4760298e-5 * x + 2.0370283e-4;
    p = ((p * x + 1.3895507e-3) * x + 8.3303098e-3) * x + 0.041666262;
    return x + x * x * ((p * x + 0.16666715) * x + 0.50000006);
  }
  return exponential(x) - 1.0;
}

fn hyperbolic_tangent(x: f32) -> f32 {
  let a = abs(x);
  if (a < 0.6) {
    let z = x * x;
    let p = ((-5.8951583e-3 * z + 0.020795971) * z - 0.05378383) * z + 0.13331924;
    return x + x * z * (p * z - 0.33333299);
  }
  let t = exponential(-2.0 * a);
  let r = (1.0 - t) / (1.0 + t);
  return select(r, -r, x < 0.0);
}

fn hyperbolic_sine(x: f32) -> f32 {
  let a = abs(x);
  if (a < 1.0) {
    let z = x * x;
    return x + x * z * (((2.8169511e-6 * z + 1.983616e-4) * z + 8.3333496e-3) * z + 0.16666667);
  }
  let half = exponential(a - 0.6931472);
  let r = half - 0.25 / half;
  return select(r, -r, x < 0.0);
}

fn hyperbolic_cosine(x: f32) -> f32 {
  let half = exponential(abs(x) - 0.6931472);
  return half + 0.25 / half;
}

fn inverse_hyperbolic_sine(x: f32) -> f32 {
  let a = abs(x);
  var r = natural_log(a) + 0.6931472;
  if (a < 1e9) { r = log1p(a + a * a / (1.0 + sqrt(a * a + 1.0))); }
  return select(r, -r, x < 0.0);
}

fn inverse_hyperbolic_cosine(x: f32) -> f32 {
  let t = x - 1.0;
  if (t < 0.0) { return f32_nan(bitcast<u32>(x)); }
  if (x < 1e9) { return log1p(t + sqrt(t * (t + 2.0))); }
  return natural_log(x) + 0.6931472;
}

fn inverse_hyperbolic_tangent(x: f32) -> f32 {
  let a = abs(x);
  if (a > 1.0) { return f32_nan(bitcast<u32>(x)); }
  if (a == 1.0) { return f32_bits(0x7f800000u | (bitcast<u32>(x) & 0x80000000u), 0u); }
  let r = 0.5 * log1p(2.0 * a / (1.0 - a));
  return select(r, -r, x < 0.0);
}

// |x| <= 1/2.
fn arcsine_near_zero(x: f32) -> f32 {
  let z = x * x;
  let p = ((0.042166263 * z + 0.02417952) * z + 0.045470376) * z + 0.074952975;
  return x + x * z * (p * z + 0.16666752);
}

fn arcsine(x: f32) -> f32 {
  let a = abs(x);
  if (a <= 0.5) { return arcsine_near_zero(x); }
  if (a > 1.0) { return f32_nan(bitcast<u32>(x)); }
  let r = 1.5707963 - 2.0 * arcsine_near_zero(sqrt((1.0 - a) * 0.5));
  return select(r, -r, x < 0.0);
}

fn arccosine(x: f32) -> f32 {
  let a = abs(x);
  if (a <= 0.5) { return 1.5707963 - arcsine_near_zero(x); }
  if (a > 1.0) { return f32_nan(bitcast<u32>(x)); }
  let r = 2.0 * arcsine_near_zero(sqrt((1.0 - a) * 0.5));
  return select(r, 3.1415927 - r, x < 0.0);
}

fn arctangent(x: f32) -> f32 {
  let a = abs(x);
  let t = select(a, 1.0 / a, a > 1.0);
  let z = t * t;
  var p = ((-1.7936228e-3 * z + 0.010914611) * z - 0.031177856) * z + 0.057957605;
  p = (((p * z - 0.08403451) * z + 0.10952186) * z - 0.14264242) * z + 0.19998549;
  let r = t + t * z * (p * z - 0.333333);
  return copy_sign(select(r, 1.5707964 - r, a > 1.0), x);
}

// 32 bits of 2/pi from bit `start` on, counted from 31 bits before the point.
fn two_over_pi_bits(start: u32) -> u32 {
  var words = array<u32, 8>(
    0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu
  );
  let word = start >> 5u;
  let shift = start & 31u;
  if (shift == 0u) { return words[word]; }
  return (words[word] << shift) | (words[word + 1u] >> (32u - shift));
}

// (r, q) with x = r + q * pi/2 modulo 2 pi, |r| <= pi/4, q in 0..3; exact for every finite x.
// Below 6433 by subtraction of pi/2 in three parts (Cody and Waite), above by 96 bits of 2/pi (Payne and Hanek, 1983).
fn quarter_turns(x: f32) -> vec2<f32> {
  let a = abs(x);
  if (a <= 0.7853982) { return vec2<f32>(x, 0.0); }
  if (a < 6433.0) {
    let k = round(x * 0.63661975);
    let r = fma(-k, 7.54979e-8, fma(-k, 4.837512969970703125e-4, fma(-k, 1.5703125, x)));
    return vec2<f32>(r, f32(i32(k) & 3));
  }
  let bits = bitcast<u32>(x);
  let body = bits & 0x7fffffffu;
  if (body >= 0x7f800000u) { return vec2<f32>(f32_nan(bits), 0.0); }
  let mantissa = (body & 0x7fffffu) | 0x800000u;
  let start = (body >> 23u) - 120u;
  let low = u32_mul_wide(mantissa, two_over_pi_bits(start + 64u));
  let middle = i64_add(u32_mul_wide(mantissa, two_over_pi_bits(start + 32u)), vec2<u32>(low.y, 0u));
  let high = mantissa * two_over_pi_bits(start) + middle.y;
  // The product modulo 4: two bits of quarter turns, then the fraction, read as a signed 64-bit number.
  let fraction = vec2<u32>((middle.x << 2u) | (low.x >> 30u), (high << 2u) | (middle.x >> 30u));
  var q = (high >> 30u) + (fraction.y >> 31u);
  var r = i64_to_f32(fraction) * 8.5153039e-20;
  if ((bits >> 31u) == 1u) {
    r = -r;
    q = 4u - q;
  }
  return vec2<f32>(r, f32(q & 3u));
}

// |r| <= pi/4.
fn sine_near_zero(r: f32) -> f32 {
  let z = r * r;
  return r + r * z * (((2.7180465e-6 * z - 1.983930e-4) * z + 8.3333291e-3) * z - 0.16666667);
}

fn cosine_near_zero(r: f32) -> f32 {
  let z = r * r;
  return 1.0 - 0.5 * z + z * z * ((2.4432413e-5 * z - 1.3887309e-3) * z + 0.041666646);
}

// sin(x + shift * pi/2).
fn sine_shifted(x: f32, shift: u32) -> f32 {
  let turned = quarter_turns(x);
  let q = u32(turned.y) + shift;
  let r = select(sine_near_zero(turned.x), cosine_near_zero(turned.x), (q & 1u) == 1u);
  return select(r, -r, (q & 2u) == 2u);
}

fn sine(x: f32) -> f32 {
  return sine_shifted(x, 0u);
}

fn cosine(x: f32) -> f32 {
  return sine_shifted(x, 1u);
}

fn tangent(x: f32) -> f32 {
  let turned = quarter_turns(x);
  let z = turned.x * turned.x;
  var p = ((4.3870788e-3 * z + 6.8198526e-5) * z + 0.010852183) * z + 0.021276057;
  p = ((p * z + 0.054061066) * z + 0.13332653) * z + 0.33333349;
  let t = turned.x + turned.x * z * p;
  return select(t, -1.0 / t, (u32(turned.y) & 1u) == 1u);
}

// erfc(a) for a >= 1: exp(-a^2) times a polynomial in (a - 2) / (a + 2).
fn erfc_tail(a: f32) -> f32 {
  let b = min(a, 10.2);
  let t = (b - 2.0) / (b + 2.0);
  var p = ((3.1893374e-4 * t - 1.0860886e-3) * t - 8.7955792e-4) * t + 7.0225899e-3;
  p = ((p * t + 3.7322915e-3) * t - 0.0789801) * t + 0.2416583;
  return exponential(-b * b) * ((p * t - 0.42718583) * t + 0.25539568);
}

// |x| < 1.
fn erf_near_zero(x: f32) -> f32 {
  let z = x * x;
  var p = (7.8535231e-5 * z - 8.0100825e-4) * z + 5.1883138e-3;
  p = ((p * z - 0.026853804) * z + 0.11283585) * z - 0.37612626;
  return x * (p * z + 1.1283791);
}

fn erf(x: f32) -> f32 {
  let a = abs(x);
  if (a < 1.0) { return erf_near_zero(x); }
  if (is_nan(x)) { return x; }
  let r = 1.0 - erfc_tail(a);
  return select(r, -r, x < 0.0);
}

fn erfc(x: f32) -> f32 {
  let a = abs(x);
  if (a < 1.0) { return 1.0 - erf_near_zero(x); }
  if (is_nan(x)) { return x; }
  let r = erfc_tail(a);
  return select(r, 2.0 - r, x < 0.0);
}

// a^y for finite a > 0 and finite y; `whole` says that y is an integer.
fn power_of_positive(a: f32, y: f32, whole: bool) -> f32 {
  if (whole && abs(y) <= 32.0) {
    var n = u32(abs(y));
    var square = a;
    var r = 1.0;
    for (var i = 0u; i < 6u; i++) {
      if ((n & 1u) == 1u) { r *= square; }
      n >>= 1u;
      square *= square;
    }
    return select(r, 1.0 / r, y < 0.0);
  }
  if (y == 0.5) { return sqrt(a); }
  let split = split_exponent(a);
  let s = (split.x - 1.0) / (split.x + 1.0);
  let z = s * s;
  let log2 = s * 2.8853901 + s * z * (((0.34021518 * z + 0.41170657) * z + 0.57708287) * z + 0.9617967);
  // y = high + low with twelve bits in `high`, so that high * exponent is exact.
  let high = bitcast<f32>(bitcast<u32>(y) & 0xfffff000u);
  let whole_part = high * split.y;
  let rest = (y - high) * split.y + y * log2;
  let total = whole_part + rest;
  if (total >= 128.0) { return f32_bits(0x7f800000u, bitcast<u32>(a)); }
  if (total < -151.0) { return 0.0; }
  let n = round(total);
  return scale_by_power(exp2((whole_part - n) + rest), i32(n));
}

// x^y as C's pow; `whole`: y is an integer (or infinite), `odd`: an odd one.
fn power_with_parity(x: f32, y: f32, whole: bool, odd: bool) -> f32 {
  if (y == 0.0 || x == 1.0) { return 1.0; }
  if (is_nan(x) || is_nan(y)) { return f32_nan(bitcast<u32>(x)); }
  let a = abs(x);
  let grows = y > 0.0;
  let none = a == 0.0;
  let endless = is_inf(x);
  var r = 1.0;
  if (none || endless || is_inf(y)) {
    if (a != 1.0) { r = select(0.0, f32_bits(0x7f800000u, bitcast<u32>(x)), grows == (a > 1.0)); }
  } else {
    r = power_of_positive(a, y, whole);
  }
  if (is_negative(x)) {
    if (odd) { return -r; }
    if (!whole && !none && !endless) { return f32_nan(bitcast<u32>(x)); }
  }
  return r;
}

fn power(x: f32, y: f32) -> f32 {
  let whole = is_inf(y) || trunc(y) == y;
  let odd = whole && abs(y) < 16777216.0 && (i32(y) & 1) == 1;
  return power_with_parity(x, y, whole, odd);
}

fn sign_of(x: f32) -> f32 {
  if (f32_is_zero(x) || is_nan(x)) { return x; }
  return copy_sign(1.0, x);
}

// False where either is NaN.
fn ordered(a: f32, b: f32) -> bool {
  return !is_nan(a) && !is_nan(b);
}
