// y = exp(x - m) / sum(exp(x - m)), m = max(x), over `length` elements that lie `inner` apart. LOG: x - m - log(sum).
//
// A row is folded into (max, sum) online, then read once more. LANES invocations share a row, WG / LANES rows a
// workgroup; one invocation a row where rows are short or neighbouring rows lie side by side. VEC: rows are whole vec4s,
// inner = 1. Rows with NaN or +inf, or of -inf alone, are all NaN. MASKED: such rows of -inf alone are 0 instead.
// Online normaliser: Milakov and Gimelshein, 2018.
//#tensors x -> y
const WG: u32 = 64u;
const LANES: u32 = 64u;

struct Params {
  rows: u32,
  length: u32,
  inner: u32,
}

//#if SUBGROUP
alias Share = vec2<f32>;

fn combine_shares(a: Share, b: Share) -> Share { return lse_combine(a, b); }

//#include lanes
//#elif SHARED
var<workgroup> parts: array<vec2<f32>, WG>;
//#endif

// (max, sum) of `total` and four elements more.
fn combine_quad(total: vec2<f32>, v: vec4<f32>) -> vec2<f32> {
  let top = nan_max(nan_max(nan_max(v[0], v[1]), nan_max(v[2], v[3])), total.x);
  let sum = (exp_below(v[0], top) + exp_below(v[1], top)) + (exp_below(v[2], top) + exp_below(v[3], top));
  return vec2<f32>(top, total.y * exp_below(total.x, top) + sum);
}

// The share of one invocation, from element `first` on in steps of `stride`, as sum * exp(max).
fn fold(base: u32, first: u32, stride: u32) -> vec2<f32> {
  var total = vec2<f32>(f32_bits(0xff800000u, params.length), 0.0);
//#if VEC
  for (var k = first * 4u; k < params.length; k += stride * 4u) {
    total = combine_quad(total, load4_x((base + k) >> 2u));
  }
//#else
  var k = first;
  for (; k + 3u * stride < params.length; k += 4u * stride) {
    let at = base + k * params.inner;
    let next = stride * params.inner;
    total = combine_quad(total, vec4<f32>(load_x(at), load_x(at + next), load_x(at + 2u * next), load_x(at + 3u * next)));
  }
  for (; k < params.length; k += stride) {
    total = lse_combine(total, vec2<f32>(load_x(base + k * params.inner), 1.0));
  }
//#endif
  return total;
}

fn result(x: f32, total: vec2<f32>, log_sum: f32) -> f32 {
//#if LOG
  return x - total.x - log_sum;
//#else
  return exp_below(x, total.x) / total.y;
//#endif
}

// Writes the elements from `first` on in steps of `stride`.
fn finish_row(base: u32, first: u32, stride: u32, total: vec2<f32>) {
  let broken = is_nan(total.x) || is_inf(total.x);
//#if MASKED
  let substitute = f32_bits(select(0x7fc00000u, 0u, is_inf(total.x) && is_negative(total.x)), params.length);
//#else
  let substitute = f32_bits(0x7fc00000u, params.length);
//#endif
  let log_sum = log(total.y);
//#if VEC
  for (var k = first * 4u; k < params.length; k += stride * 4u) {
    let g = (base + k) >> 2u;
    let v = load4_x(g);
    var out = vec4<f32>(substitute);
    if (!broken) {
      out = vec4<f32>(
        result(v[0], total, log_sum), result(v[1], total, log_sum),
        result(v[2], total, log_sum), result(v[3], total, log_sum));
    }
    store4_y(g, out[0], out[1], out[2], out[3]);
  }
//#else
  for (var k = first; k < params.length; k += stride) {
    let at = base + k * params.inner;
    var out = substitute;
    if (!broken) { out = result(load_x(at), total, log_sum); }
    store_y(at, out);
  }
//#endif
}

fn start(row: u32) -> u32 {
  let outer = row / params.inner;
  return outer * params.length * params.inner + (row - outer * params.inner);
}

//#include rows_of_workgroup
  let base = start(min(row, params.rows - 1u));
//#include rows_folded combine=lse_combine
  if (row < params.rows) { finish_row(base, lane, LANES, total); }
}
