// The entry point that runs until the other's pipeline is there: `kernels/quick.py`.
// QUICK_ROWS rows and four columns at a time, without workgroup memory.
const QUICK_ROWS: u32 = 4u;

@compute @workgroup_size(128)
fn quick(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let job = job_of(workgroup_index(wid, nwg));
  if (!job.is_real) { return; }
  let high = quads_each(params.rows, params.row_tiles);
  let wide = quads_each(params.columns, params.column_tiles);
  let depth = params.channels * TAPS;
  let share = quads_each(depth, params.splits) * 4u;
  let end = min(job.split * share + share, depth);
  let x_zero = zero_of_x();
  for (var e = lane; e < high * wide * (4u / QUICK_ROWS); e += 128u) {
    let row = job.row_tile * high * 4u + e / wide * QUICK_ROWS;
    let quad = columns4((job.column_tile * wide + e % wide) * 4u, job.group, job.phase);
    var sums = array<vec4<ACC>, QUICK_ROWS>();
    for (var k = job.split * share; k < end; k++) {
      let a = weight4(quad, row, k, job.group);
      let b = input4(quad, k, x_zero);
      //#unroll
      for (var r = 0u; r < QUICK_ROWS; r++) {
        sums[r] += a[r] * b;
      }
    }
    // `finish` is there once, in a loop whose count compilers do not know.
    for (var r = 0u; r < min(QUICK_ROWS, params.rows); r++) {
      emit(sums[0], row + r, job.group, quad, job.split * params.size);
      //#unroll
      for (var i = 0u; i < QUICK_ROWS - 1u; i++) {
        sums[i] = sums[i + 1u];
      }
    }
  }
}
