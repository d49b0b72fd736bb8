// y = x + 1, two vec4s an invocation: as fast as memory goes. For profiles.
//#tensors x -> y
const WG: u32 = 256u;

struct Params {
  quads: u32,
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let at = global_index(gid, nwg, WG);
  let half = params.quads / 2u;
  if (at >= half) { return; }
  let a = load4_x(at) + vec4<f32>(1.0);
  let b = load4_x(at + half) + vec4<f32>(1.0);
  store4_y(at, a[0], a[1], a[2], a[3]);
  store4_y(at + half, b[0], b[1], b[2], b[3]);
}
