// Accumulators of the reductions that need more than an operator.

// The greater of two numbers; NaN where either is one.
fn nan_max(a: f32, b: f32) -> f32 {
  if (is_nan(a)) { return a; }
  if (is_nan(b)) { return b; }
  return max(a, b);
}

// The smaller of two numbers; NaN where either is one.
fn nan_min(a: f32, b: f32) -> f32 {
  if (is_nan(a)) { return a; }
  if (is_nan(b)) { return b; }
  return min(a, b);
}

// x, or `low` where that is greater; a NaN stays, and bounds nothing.
fn at_least(x: f32, low: f32) -> f32 {
  if (is_nan(x) || is_nan(low)) { return x; }
  return max(x, low);
}

// x, or `high` where that is smaller; a NaN stays, and bounds nothing.
fn at_most(x: f32, high: f32) -> f32 {
  if (is_nan(x) || is_nan(high)) { return x; }
  return min(x, high);
}

// exp(x - top) for x <= top; 1 where they are the same infinity. Below exp(-110) every f32 is 0.
fn exp_below(x: f32, top: f32) -> f32 {
  if (bitcast<u32>(x) == bitcast<u32>(top)) { return 1.0; }
  return exp(max(x - top, -110.0));
}

// (m, s) stands for s * exp(m): the sum of two such numbers. NaN as either m wins.
fn lse_combine(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
  let top = nan_max(a.x, b.x);
  if (is_nan(top)) { return vec2<f32>(top, 1.0); }
  return vec2<f32>(top, a.y * exp_below(a.x, top) + b.y * exp_below(b.x, top));
}

// log with its limits spelled out: NaN of NaN, -inf at 0, NaN below.
fn log_of(x: f32, seed: u32) -> f32 {
  if (is_nan(x)) { return x; }
  if (x > 0.0) { return log(x); }
  return f32_bits(select(0x7fc00000u, 0xff800000u, x == 0.0), seed);
}

// floor(sqrt(a)), exact: one bit of the root a turn.
fn u64_sqrt(a: vec2<u32>) -> u32 {
  var root = 0u;
  for (var n = 0u; n < 32u; n++) {
    let wider = root | (0x80000000u >> n);
    if (!u64_lt(a, u32_mul_wide(wider, wider))) { root = wider; }
  }
  return root;
}

// Truncated quotient of a 64-bit sum and a count; 0 where nothing was counted.
fn i64_mean(sum: vec2<u32>, n: u32) -> vec2<u32> {
  return i64_div(sum, vec2<u32>(n, 0u));
}

fn u64_mean(sum: vec2<u32>, n: u32) -> vec2<u32> {
  return u64_divmod(sum, vec2<u32>(n, 0u)).xy;
}
