// Quantised weights to f32, four at a time. The bits of a weight, put into the mantissa of a power of two whose last
// place they are, are the f32 `power + weight`: no shift to place and no conversion, which GPUs do at half their rate.
// `base` holds these powers plus the zero point, so that results are weights minus zero points, exact for whole ones.

// Weights of 2 bits in the low byte of `word`.
fn weights_2(word: u32, base: vec4<f32>) -> vec4<f32> {
  let bits = vec4<u32>(word) & vec4<u32>(0x3u, 0xcu, 0x30u, 0xc0u);
  return bitcast<vec4<f32>>(bits | vec4<u32>(0x4b000000u, 0x4a000000u, 0x49000000u, 0x48000000u)) - base;
}

fn powers_2() -> vec4<f32> {
  return vec4<f32>(8388608.0, 2097152.0, 524288.0, 131072.0);
}

// Weights of 4 bits in the low half of `word`.
fn weights_4(word: u32, base: vec4<f32>) -> vec4<f32> {
  let bits = vec4<u32>(word) & vec4<u32>(0xfu, 0xf0u, 0xf00u, 0xf000u);
  return bitcast<vec4<f32>>(bits | vec4<u32>(0x4b000000u, 0x49000000u, 0x47000000u, 0x45000000u)) - base;
}

fn powers_4() -> vec4<f32> {
  return vec4<f32>(8388608.0, 524288.0, 32768.0, 2048.0);
}

// Weights of 8 bits in `word`.
fn weights_8(word: u32, base: vec4<f32>) -> vec4<f32> {
  let high = word >> 16u;
  let bits = vec4<u32>(word, word, high, high) & vec4<u32>(0xffu, 0xff00u, 0xffu, 0xff00u);
  return bitcast<vec4<f32>>(bits | vec4<u32>(0x4b000000u, 0x47000000u, 0x4b000000u, 0x47000000u)) - base;
}

fn powers_8() -> vec4<f32> {
  return vec4<f32>(8388608.0, 32768.0, 8388608.0, 32768.0);
}

// The value of a 4-bit code of bitsandbytes: NF4, quantiles of the normal distribution.
fn nf4_value(code: u32) -> f32 {
  var table = array<f32, 16>(
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0);
  return table[code];
}

// FP4: a sign, two bits of exponent, one of mantissa.
fn fp4_value(code: u32) -> f32 {
  var table = array<f32, 16>(
    0.0, 0.005208333333333333, 0.6666666666666666, 1.0, 0.3333333333333333, 0.5, 0.16666666666666666, 0.25,
    0.0, -0.005208333333333333, -0.6666666666666666, -1.0, -0.3333333333333333, -0.5, -0.16666666666666666, -0.25);
  return table[code];
}

// The four codes in the low half of `word`, high bits of a byte first.
fn nf4_quad(word: u32) -> vec4<f32> {
  return vec4<f32>(
    nf4_value((word >> 4u) & 15u), nf4_value(word & 15u), nf4_value((word >> 12u) & 15u), nf4_value((word >> 8u) & 15u));
}

fn fp4_quad(word: u32) -> vec4<f32> {
  return vec4<f32>(
    fp4_value((word >> 4u) & 15u), fp4_value(word & 15u), fp4_value((word >> 12u) & 15u), fp4_value((word >> 8u) & 15u));
}
