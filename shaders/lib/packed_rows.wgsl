// Rows of a key/value cache packed to integers of 8 or 4 bits: x = low + step * code, codes from 0 to `most`. The word
// after the codes of a row is its coding: `step` as bfloat16, rounded up, in the low half, `low`, rounded down, in the
// high half.

// The coding of a row whose components lie between `least` and `largest`.
fn row_coding(least: f32, largest: f32, most: f32) -> u32 {
  let bits = bitcast<u32>(least);
  let low = select(bits, bits + 0xffffu, least < 0.0) & 0xffff0000u;
  let step = bitcast<u32>(max(0.0, largest - bitcast<f32>(low)) / most);
  return low | ((step + 0xffffu) >> 16u);
}

fn row_codes(x: vec4<f32>, coding: u32, most: f32) -> vec4<u32> {
  let step = bitcast<f32>(coding << 16u);
  let shifted = x - bitcast<f32>(coding & 0xffff0000u);
  return vec4<u32>(clamp(round(shifted / select(1.0, step, step > 0.0)), vec4<f32>(), vec4<f32>(most)));
}

// What four codes, as numbers, stand for.
fn row_values(codes: vec4<f32>, coding: u32) -> vec4<f32> {
  return bitcast<f32>(coding & 0xffff0000u) + bitcast<f32>(coding << 16u) * codes;
}
