// The entry point that runs until the other's pipeline is there: `kernels/quick.py`.
// The same results an invocation, without workgroup memory.
@compute @workgroup_size(THREADS)
fn quick(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let job = job_of(workgroup_index(wid, nwg));
  if (!job.is_real) { return; }
  let quad = columns4((job.column_tile * SIDE + lane % SIDE) * 4u, job.group, job.phase);
  let share = params.steps * SLICES * 16u;
  let x_zero = zero_of_x();
  for (var t = 0u; t < min(TALL, params.rows); t++) {
    let row = (job.row_tile * SIDE + lane / SIDE + t * HIGH) * 4u;
    var sums = array<vec4<ACC>, 4>();
    for (var k = job.split * share; k < job.split * share + share; k++) {
      let a = weight4(quad, row, k, job.group);
      let b = input4(quad, k, x_zero);
      sums[0] += a.x * b;
      sums[1] += a.y * b;
      sums[2] += a.z * b;
      sums[3] += a.w * b;
    }
    // `finish` is there once, in a loop whose count compilers do not know.
    for (var r = 0u; r < min(4u, params.rows); r++) {
      emit(sums[0], row + r, job.group, quad, job.split * params.size);
      sums[0] = sums[1];
      sums[1] = sums[2];
      sums[2] = sums[3];
    }
  }
}
