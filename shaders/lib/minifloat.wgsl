// Floats of 4 and 8 bits to f32 and back, to nearest, ties to even. Encoding does not saturate: what overflows becomes
// infinity where the type has one, else NaN, else (float4) the largest value.
// Sources: ONNX "Float stored in 8 bits", "Float stored in 4 bits"; OCP 8-bit Floating Point and Microscaling Formats.

// Exponent and mantissa bits `body` of a float with `mantissa` bits and exponent bias `bias`, all patterns finite.
fn minifloat_decode(body: u32, mantissa: u32, bias: u32) -> f32 {
  if ((body >> mantissa) == 0u) { return f32(body) * bitcast<f32>((128u - bias - mantissa) << 23u); }
  return bitcast<f32>((body << (23u - mantissa)) + ((127u - bias) << 23u));
}

// The nearest pattern without sign, as if exponents never ended. `body`: the bits of a finite f32 without sign.
fn minifloat_encode(body: u32, mantissa: u32, bias: u32) -> u32 {
  let drop = 23u - mantissa;
  let lowest = (128u - bias) << 23u;
  if (body >= lowest) {
    return (body - ((127u - bias) << 23u) + (1u << (drop - 1u)) - 1u + ((body >> drop) & 1u)) >> drop;
  }
  let shift = drop + 128u - bias - max(body >> 23u, 1u);
  if (shift > 24u) { return 0u; }
  let whole = select(body, (body & 0x7fffffu) | 0x800000u, body >= 0x800000u);
  return (whole + (1u << (shift - 1u)) - 1u + ((whole >> shift) & 1u)) >> shift;
}

fn e4m3fn_decode(h: u32) -> f32 {
  let body = h & 0x7fu;
  if (body == 0x7fu) { return f32_nan(h); }
  return copy_sign(minifloat_decode(body, 3u, 7u), bitcast<f32>(h << 24u));
}

fn e4m3fn_encode(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let body = bits & 0x7fffffffu;
  return ((bits >> 24u) & 0x80u) | min(minifloat_encode(min(body, 0x7f000000u), 3u, 7u), 0x7fu);
}

fn e5m2_decode(h: u32) -> f32 {
  return f16_decode(h << 8u);
}

fn e5m2_encode(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let body = bits & 0x7fffffffu;
  let sign = (bits >> 24u) & 0x80u;
  if (body > 0x7f800000u) { return sign | 0x7fu; }
  return sign | min(minifloat_encode(min(body, 0x7f000000u), 2u, 15u), 0x7cu);
}

// FNUZ: no negative zero; its pattern is the only NaN.
fn fnuz_decode(h: u32, mantissa: u32, bias: u32) -> f32 {
  if (h == 0x80u) { return f32_nan(h); }
  return copy_sign(minifloat_decode(h & 0x7fu, mantissa, bias), bitcast<f32>(h << 24u));
}

fn fnuz_encode(x: f32, mantissa: u32, bias: u32) -> u32 {
  let bits = bitcast<u32>(x);
  let code = minifloat_encode(min(bits & 0x7fffffffu, 0x7f000000u), mantissa, bias);
  if (code > 0x7fu) { return 0x80u; }
  return select(code | ((bits >> 24u) & 0x80u), 0u, code == 0u);
}

fn e4m3fnuz_decode(h: u32) -> f32 {
  return fnuz_decode(h, 3u, 8u);
}

fn e4m3fnuz_encode(x: f32) -> u32 {
  return fnuz_encode(x, 3u, 8u);
}

fn e5m2fnuz_decode(h: u32) -> f32 {
  return fnuz_decode(h, 2u, 16u);
}

fn e5m2fnuz_encode(x: f32) -> u32 {
  return fnuz_encode(x, 2u, 16u);
}

fn e2m1_decode(h: u32) -> f32 {
  return copy_sign(minifloat_decode(h & 7u, 1u, 1u), bitcast<f32>(h << 28u));
}

// There is no NaN: it becomes a zero of the opposite sign, as in ONNX's reference.
fn e2m1_encode(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let body = bits & 0x7fffffffu;
  let sign = (bits >> 28u) & 8u;
  if (body > 0x7f800000u) { return sign ^ 8u; }
  return sign | min(minifloat_encode(min(body, 0x7f000000u), 1u, 1u), 7u);
}

// Powers of two: 2^(h - 127); 255 is NaN. 2^-127 is a subnormal f32.
fn e8m0_decode(h: u32) -> f32 {
  if (h == 255u) { return f32_nan(h); }
  return bitcast<f32>(select(h << 23u, 0x400000u, h == 0u));
}

// The exponent of |x|, rounded: mode 0 down, 1 up, 2 to nearest with ties up. Infinity and NaN are NaN.
fn e8m0_round(x: f32, mode: u32, saturate: bool) -> u32 {
  let body = bitcast<u32>(x) & 0x7fffffffu;
  let exponent = body >> 23u;
  if (exponent == 255u) { return 255u; }
  let fraction = body & 0x7fffffu;
  let nearer = fraction > 0x400000u || (fraction == 0x400000u && exponent != 0u);
  let up = select(mode == 1u && fraction != 0u, nearer, mode == 2u);
  return select(exponent, exponent + 1u, up && !(saturate && exponent == 254u));
}

fn e8m0_encode(x: f32) -> u32 {
  return e8m0_round(x, 2u, true);
}
