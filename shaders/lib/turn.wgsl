// cos(2πk/n) for k < n < 2^28, to 1 ulp or so: the quarter turn is found in integers, the rest (within ±π/4) by
// Taylor polynomials. WGSL's cos is good to 2^-11 only.
fn cos_turn(k: u32, n: u32) -> f32 {
  let quarter = (8u * k + n) / (2u * n);
  let x = 1.5707963267948966 * f32(i32(4u * k) - i32(quarter * n)) / f32(n);
  let s = x * x;
  let sine = x * (1.0 + s * (-1.0 / 6.0 + s * (1.0 / 120.0 + s * (-1.0 / 5040.0 + s / 362880.0))));
  let cosine = 1.0 + s * (-0.5 + s * (1.0 / 24.0 + s * (-1.0 / 720.0 + s * (1.0 / 40320.0 - s / 3628800.0))));
  switch (quarter & 3u) {
    case 0u: { return cosine; }
    case 1u: { return -sine; }
    case 2u: { return -cosine; }
    default: { return sine; }
  }
}
