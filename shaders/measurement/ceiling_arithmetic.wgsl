// Multiplications and additions alone, enough at a time in a workgroup to keep a multiprocessor busy. For calibration.
//#tensors x -> y
const WG: u32 = 256u;

struct Params {
  rounds: u32,
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let factor = vec4<f32>(load_x(0u));
  var a = vec4<f32>(f32(local), 1.0, 2.0, 3.0);
  var b = a + 4.0;
  var c = a + 8.0;
  var d = a + 12.0;
  for (var i = 0u; i < params.rounds; i++) {
    a = fma(a, factor, b);
    b = fma(b, factor, c);
    c = fma(c, factor, d);
    d = fma(d, factor, a);
  }
  // Never so for operands of zeros, but no compiler knows.
  if (dot(a + b, c + d) == 0.5) { store_y(wid.x, 1.0); }
}
