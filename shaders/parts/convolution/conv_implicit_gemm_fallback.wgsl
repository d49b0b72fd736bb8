// The entry point that runs until the other's pipeline is there: `kernels/ir/fallback.py`.
// FALLBACK_ROWS rows and four columns at a time, without workgroup memory. LIGHT: one number after the other, of four columns, by loops
// whose counts compilers do not know: vectors take them twice as long.
const FALLBACK_ROWS: u32 = 4u;

@compute @workgroup_size(128)
//#include workgroup name=fallback place=lane
  let job = job_of(workgroup_index(wid, nwg));
  if (!job.is_real) { return; }
  let high = quads_each(params.rows, params.row_tiles);
  let wide = quads_each(params.columns, params.column_tiles);
  let depth = params.channels * POSITIONS;
  let share = quads_each(depth, params.splits) * 4u;
  let begin = job.split * share;
  let end = min(begin + share, depth);
  let x_zero = zero_of_x();
//#if LIGHT
  for (var e = lane; e < high * 4u * wide; e += 128u) {
    let down = e / wide;
    let row = job.row_tile * high * 4u + down;
    let w_at = (job.group * params.rows + min(row, params.rows - 1u)) * depth;
    let w_zero = zeros4(row, job.group).x;
    var quad: Quad;
    var sums: vec4<ACC>;
    for (var c = 0u; c < 4u * min(params.rows, 1u); c++) {
      let j = (job.column_tile * wide + e - down * wide) * 4u + c;
      let image = j / params.output.w;
      let p = j - image * params.output.w;
      let oh = p / params.output.z;
      let w = i32(p - oh * params.output.z) * params.strides.z - params.pads.z;
//#if VOLUME
      let od = oh / params.output.y;
      let h = i32(oh - od * params.output.y) * params.strides.y - params.pads.y;
      let d = i32(od) * params.strides.x - params.pads.x;
//#else
      let h = i32(oh) * params.strides.y - params.pads.y;
      let d = 0i;
//#endif
      let plane = i32((image * params.input.w + job.group * params.channels) * params.input.x);
      let start = u32(((d + plane) * i32(params.input.y) + h) * i32(params.input.z) + w);
      let is_real = j < params.columns;
      var sum = ACC(0);
      for (var k = begin; k < select(0u, end, is_real); k++) {
        let position = position_of(k);
        let step = position.yzw * params.dilations.xyz;
        if (u32(h + i32(step.y)) >= params.input.y || u32(w + i32(step.z)) >= params.input.z) { continue; }
//#if VOLUME
        if (u32(d + i32(step.x)) >= params.input.x) { continue; }
//#endif
        let offset = ((position.x * params.input.x + step.x) * params.input.y + step.y) * params.input.z + step.z;
        sum += (ACC(load_w(w_at + k)) - w_zero) * (ACC(load_x(start + offset)) - x_zero);
      }
      sums = vec4<ACC>(sums.yzw, sum);
      quad.inside = vec4<bool>(quad.inside.yzw, is_real);
      quad.y_at = vec4<u32>(quad.y_at.yzw, image * (params.groups * params.rows * params.output.w) + p);
    }
    emit(sums, row, job.group, quad, job.split * params.size);
  }
//#else
  for (var e = lane; e < high * wide * (4u / FALLBACK_ROWS); e += 128u) {
    let row = job.row_tile * high * 4u + e / wide * FALLBACK_ROWS;
    let quad = columns4((job.column_tile * wide + e % wide) * 4u, job.group, job.phase);
    var sums = array<vec4<ACC>, FALLBACK_ROWS>();
    for (var k = begin; k < end; k++) {
      let a = vec4<ACC>(weight4(quad, row, k, job.group));
      let b = vec4<ACC>(input4(quad, k, x_zero));
      //#unroll
      for (var r = 0u; r < FALLBACK_ROWS; r++) {
        sums[r] += a[r] * b;
      }
    }
    // `finish` is there once, in a loop whose count compilers do not know.
    for (var r = 0u; r < min(FALLBACK_ROWS, params.rows); r++) {
      emit(sums[0], row + r, job.group, quad, job.split * params.size);
      //#unroll
      for (var i = 0u; i < FALLBACK_ROWS - 1u; i++) {
        sums[i] = sums[i + 1u];
      }
    }
  }
//#endif
}
