// The entry point that runs until the other's pipeline is there: `kernels/ir/fallback.py`.
// One of the four neighbours after the other, by loops whose counts compilers do not know.
@compute @workgroup_size(64)
fn fallback(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let job = global_index(gid, nwg, 64u);
  if (job >= params.jobs) { return; }
  let four = four_of(job);
  var sums = vec4<ACC>(0);
  for (var c = 0u; c < 4u * min(params.jobs, 1u); c++) {
    var sum = ACC(0);
    for (var kh = 0u; kh < params.window.x; kh++) {
      let h = u32(four.h0 + i32(kh));
      if (h >= params.input.x) { continue; }
      for (var kw = 0u; kw < params.window.y; kw++) {
        let w = u32(four.w0 + i32(c * params.window.w + kw));
        if (w >= params.input.y) { continue; }
        let weight = ACC(load_w((four.m * params.window.x + kh) * params.window.y + kw));
        sum += weight * ACC(load_x((four.plane + h) * params.input.y + w));
      }
    }
    sums = vec4<ACC>(sums.yzw, sum);
  }
  emit(sums, four);
}
