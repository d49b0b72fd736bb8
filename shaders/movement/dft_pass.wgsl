// One Stockham pass of radix RADIX over rows of n complex numbers: see pyruntime/kernels/fourier.py.
// FIRST reads the signal (through a window, real, or as half of a Hermitian spectrum), LAST writes the output;
// others use f32 scratch.
//#tensors signal, window, twiddle, source -> output, into
const RADIX: u32 = 4u;

struct Params {
  n: u32,
  rows: u32,
  done: u32,
  inner: u32,
  signal_outer: u32,
  signal_inner: u32,
  signal_step: u32,
  signal_length: u32,
  output_outer: u32,
  output_inner: u32,
  output_step: u32,
  output_length: u32,
  scale: f32,
  phase_error: f32,
}

//#if FIRST
fn element(row: u32, at: u32) -> vec2<f32> {
  var k = at;
//#if HERMITIAN
  let mirrored = at > params.n / 2u;
  if (mirrored) { k = params.n - at; }
//#endif
  if (k >= params.signal_length) { return vec2<f32>(0.0, 0.0); }
  let outer = row / params.inner;
  let i = outer * params.signal_outer + (row - outer * params.inner) * params.signal_inner + k * params.signal_step;
//#if REAL
  var v = vec2<f32>(load_signal(i), 0.0);
//#else
  var v = vec2<f32>(load_signal(2u * i), load_signal(2u * i + 1u));
//#endif
//#if HERMITIAN
  if (mirrored) { v.y = -v.y; }
  if (k == 0u || 2u * k == params.n) { v.y = 0.0; }
//#endif
//#if WINDOW
  v *= load_window(k);
//#endif
  return v;
}
//#else
fn element(row: u32, at: u32) -> vec2<f32> {
  let i = 2u * (row * params.n + at);
  return vec2<f32>(load_source(i), load_source(i + 1u));
}
//#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let g = global_index(gid, nwg, 64u);
  if (g >= params.rows * params.n) { return; }
  let row = g / params.n;
  let o = g - row * params.n;
//#if LAST
  if (o >= params.output_length) { return; }
//#endif
  let span = params.done * RADIX;
  let block = o / span;
  let turn = o - block * span;
  let j = block * params.done + turn % params.done;
  let apart = params.n / RADIX;
  let fine = params.n / span;

  var sum = vec2<f32>(0.0, 0.0);
  var angle = 0u;
  for (var r = 0u; r < RADIX; r++) {
    let w = vec2<f32>(load_twiddle(2u * angle * fine), load_twiddle(2u * angle * fine + 1u));
    let v = element(row, j + r * apart);
    sum += vec2<f32>(v.x * w.x - v.y * w.y, v.x * w.y + v.y * w.x);
    angle += turn;
    if (angle >= span) { angle -= span; }
  }
//#if LAST
  sum *= params.scale;
  if (o == 0u || 2u * o == params.n) { sum.y -= params.phase_error * sum.x; }
  let outer = row / params.inner;
  let i = outer * params.output_outer + (row - outer * params.inner) * params.output_inner + o * params.output_step;
//#if REAL_OUT
  store_output(i, sum.x);
//#else
  store_output(2u * i, sum.x);
  store_output(2u * i + 1u, sum.y);
//#endif
//#else
  store_into(2u * g, sum.x);
  store_into(2u * g + 1u, sum.y);
//#endif
}
