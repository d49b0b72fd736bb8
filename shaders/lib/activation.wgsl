// Activations in f32. NaN in, NaN out, but where the formula compares it away (thresholded_relu, shrink).
fn relu(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  return select(x, 0.0, bits > 0x80000000u && bits <= 0xff800000u);
}

fn leaky_relu(x: f32, alpha: f32) -> f32 {
  return select(x, alpha * x, x < 0.0);
}

fn thresholded_relu(x: f32, alpha: f32) -> f32 {
  return select(0.0, x, x > alpha && !is_nan(x));
}

fn elu(x: f32, alpha: f32) -> f32 {
  return select(x, alpha * expm1(x), x < 0.0);
}

fn selu(x: f32, alpha: f32, gamma: f32) -> f32 {
  return gamma * elu(x, alpha);
}

fn celu(x: f32, alpha: f32) -> f32 {
  return select(x, alpha * expm1(x / alpha), x < 0.0);
}

fn sigmoid(x: f32) -> f32 {
  let t = exponential(-abs(x));
  return select(1.0, t, x < 0.0) / (1.0 + t);
}

fn swish(x: f32, alpha: f32) -> f32 {
  return x * sigmoid(alpha * x);
}

// x clipped to [low, high], NaN kept: min(high, max(low, x)).
fn clip(x: f32, low: f32, high: f32) -> f32 {
  return nan_min(high, nan_max(low, x));
}

fn hard_sigmoid(x: f32, alpha: f32, beta: f32) -> f32 {
  return clip(alpha * x + beta, 0.0, 1.0);
}

fn hard_swish(x: f32) -> f32 {
  return x * clip(x * 0.16666667 + 0.5, 0.0, 1.0);
}

// ln(1 + e^x)
fn softplus(x: f32) -> f32 {
  return max(x, 0.0) + log1p(exponential(-abs(x)));
}

fn softsign(x: f32) -> f32 {
  return x / (1.0 + abs(x));
}

// x tanh(softplus(x)) = x ((1 + e^x)^2 - 1) / ((1 + e^x)^2 + 1)
fn mish(x: f32) -> f32 {
  let t = exponential(-abs(x));
  let n = select(1.0 + 2.0 * t, t * (t + 2.0), x < 0.0);
  let d = select(2.0 * t * t, 2.0, x < 0.0);
  return x * (n / (n + d));
}

fn shrink(x: f32, bias: f32, lambd: f32) -> f32 {
  return select(select(0.0, x - bias, x > lambd), x + bias, x < -lambd);
}

// x times the normal distribution's integral up to x.
fn gelu(x: f32) -> f32 {
  return 0.5 * x * erfc(-0.70710678 * x);
}

// The approximation 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3).
fn gelu_tanh(x: f32) -> f32 {
  return x * sigmoid(1.5957691 * (x + 0.044715 * x * x * x));
}
