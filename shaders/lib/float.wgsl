// Tests by bits: the compiler may assume that NaN and infinity do not occur.
fn is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_inf(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

fn is_negative(x: f32) -> bool {
  return (bitcast<u32>(x) >> 31u) != 0u;
}

// Built at run time: constant expressions may not be infinite or NaN. Any uniform or loaded `seed` does.
fn f32_bits(bits: u32, seed: u32) -> f32 {
  return bitcast<f32>(bits | (seed & 0u));
}

// Devices may take subnormal numbers for 0; these three do not. Below 0x00800000 bits are a multiple of 2^-149.
fn floor_of(x: f32) -> f32 {
  return select(floor(x), -1.0, bitcast<u32>(x) - 0x80000001u < 0x007fffffu);
}

fn ceiling_of(x: f32) -> f32 {
  return select(ceil(x), 1.0, bitcast<u32>(x) - 1u < 0x007fffffu);
}

fn square_root(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let tiny = bits - 1u < 0x007fffffu;
  let known = select(x, -1.0, bits - 0x80000001u < 0x007fffffu);
  return sqrt(select(known, f32(2u * bits), tiny)) * select(1.0, 2.6469779601696886e-23, tiny);
}

// IEEE 754 binary16 to binary32, exact; subnormals, infinities and NaN included.
fn f16_decode(h: u32) -> f32 {
  let sign = (h & 0x8000u) << 16u;
  let body = (h & 0x7fffu) << 13u;
  let normal = body + select(0x38000000u, 0x70000000u, body >= 0x0f800000u);
  // Of a subnormal m: twice (1 + m / 1024) 2^-15, less 2^-14.
  let tiny = 2.0 * bitcast<f32>(normal) - 6.103515625e-05;
  return bitcast<f32>(sign | select(normal, bitcast<u32>(tiny), body < 0x00800000u));
}

// binary32 to binary16 bits, to nearest, ties to even; overflow to infinity.
fn f16_encode(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let body = bits & 0x7fffffffu;
  let normal = min((body - 0x38000000u + 0xfffu + ((body >> 13u) & 1u)) >> 13u, 0x7c00u);
  // Numbers between 0.5 and 1 are 2^-24 apart, as subnormal binary16 are.
  let tiny = bitcast<u32>(bitcast<f32>(body) + 0.5) - 0x3f000000u;
  let finite = select(normal, tiny, body < 0x38800000u);
  return sign | select(finite, 0x7e00u, body > 0x7f800000u);
}

// The binary16 nearest to x, ties to even, as a binary32: infinite past the largest one.
fn f16_near(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let body = bits & 0x7fffffffu;
  let normal = (body + 0xfffu + ((body >> 13u) & 1u)) & 0xffffe000u;
  // Numbers between 0.5 and 1 are 2^-24 apart, as subnormal binary16 are.
  let count = bitcast<u32>(bitcast<f32>(body) + 0.5) - 0x3f000000u;
  let tiny = bitcast<u32>(f32(count) * 5.9604644775390625e-8);
  let known = select(normal, tiny, body < 0x38800000u);
  let near = select(known, 0x7f800000u, known >= 0x47800000u);
  return bitcast<f32>((bits & 0x80000000u) | select(near, body, body > 0x7f800000u));
}

// binary32 to bfloat16 bits, to nearest, ties to even.
fn bf16_encode(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
