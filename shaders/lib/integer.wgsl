// 32-bit integer arithmetic where WGSL's operators differ from NumPy's: division and remainder by 0 give 0.
fn i32_div(a: i32, b: i32) -> i32 {
  return select(a / b, 0, b == 0);
}

fn u32_div(a: u32, b: u32) -> u32 {
  return select(a / b, 0u, b == 0u);
}

// a % b, which naga compiles wrongly for negative operands on NVIDIA's GPUs.
fn i32_rem(a: i32, b: i32) -> i32 {
  return a - (a / b) * b;
}

// Remainder with the sign of the dividend.
fn i32_fmod(a: i32, b: i32) -> i32 {
  return select(i32_rem(a, b), 0, b == 0);
}

// Remainder with the sign of the divisor.
fn i32_mod(a: i32, b: i32) -> i32 {
  let r = i32_fmod(a, b);
  return select(r, r + b, r != 0 && (r ^ b) < 0);
}

fn u32_mod(a: u32, b: u32) -> u32 {
  return select(a % b, 0u, b == 0u);
}

// Counts of 32 and more (negative ones too) shift everything out.
fn u32_shl(x: u32, n: u32) -> u32 {
  return select(x << (n & 31u), 0u, n >= 32u);
}

fn u32_shr(x: u32, n: u32) -> u32 {
  return select(x >> (n & 31u), 0u, n >= 32u);
}

fn i32_shr(x: i32, n: u32) -> i32 {
  return x >> min(n, 31u);
}

// x^n modulo 2^32 for an int64 n; a negative power is 0 unless x is 1 or -1.
fn i32_pow(x: i32, n: vec2<u32>) -> i32 {
  return i64_low(i64_pow(i64_of_i32(x), n));
}

// The sum of four products of signed bytes, as dot4I8Packed has it, for devices without that function.
fn i8_dot4(a: u32, b: u32) -> i32 {
  let x = vec4<i32>(vec4<u32>(a << 24u, a << 16u, a << 8u, a)) >> vec4<u32>(24u);
  let y = vec4<i32>(vec4<u32>(b << 24u, b << 16u, b << 8u, b)) >> vec4<u32>(24u);
  return dot(x, y);
}

// Four rows of four bytes as four columns: byte i of column j is byte j of row i.
fn transposed_bytes(r0: u32, r1: u32, r2: u32, r3: u32) -> vec4<u32> {
  let even_top = (r0 & 0x00ff00ffu) | ((r1 & 0x00ff00ffu) << 8u);
  let odd_top = ((r0 >> 8u) & 0x00ff00ffu) | (r1 & 0xff00ff00u);
  let even_low = (r2 & 0x00ff00ffu) | ((r3 & 0x00ff00ffu) << 8u);
  let odd_low = ((r2 >> 8u) & 0x00ff00ffu) | (r3 & 0xff00ff00u);
  return vec4<u32>(
    (even_top & 0xffffu) | (even_low << 16u), (odd_top & 0xffffu) | (odd_low << 16u),
    (even_top >> 16u) | (even_low & 0xffff0000u), (odd_top >> 16u) | (odd_low & 0xffff0000u));
}
