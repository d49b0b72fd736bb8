// y[n, c, i] = x[n, c, i] / (bias + alpha / size * sum over channels near c of x[n, ., i]^2)^beta
//
// One invocation makes four neighbouring elements.
//#tensors x -> y
const MANY: u32 = 0x10000000u;

struct Params {
  size: u32,       // elements of y
  channels: u32,
  inner: u32,      // elements of a channel
  before: u32,     // channels below c that count
  after: u32,      // and above
  scale: f32,      // alpha / size
  offset: f32,     // bias
  beta: f32,
}

fn element(i: u32) -> f32 {
  let c = (i / params.inner) % params.channels;
  let below = min(c, params.before);
  let count = below + min(params.channels - 1u - c, params.after) + 1u;
  let start = i - below * params.inner;
  var sum = 0.0;
  for (var k = 0u; k < MANY; k++) {
    if (k >= count) { break; }
    let v = load_x(start + k * params.inner);
    sum += v * v;
  }
  return load_x(i) / pow(params.offset + params.scale * sum, params.beta);
}

//#include elements_of_four
