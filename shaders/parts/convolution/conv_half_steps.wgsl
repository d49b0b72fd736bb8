// The steps of float16: operands of one are on their way while the last one's are multiplied.
  var k = (job.split * params.steps * SLICES + slice) * 2u * PAIRS;
  var w_next: array<vec4<S>, 4>;
  var x_next: array<vec4<S>, 4>;
  var sums: array<vec4<ACC>, 4u * TALL>;
  for (var step = 0u; step < MANY; step++) {
    for (var n = 0u; n < 4u; n++) {
      w_next[n] = weight4(quad, first + (w_row + n / 2u * (SIDE / 2u)) * 4u, k + 2u * w_k + n % 2u, job.group);
      x_next[n] = input4(quad, k + 2u * (row + n / 2u * 8u) + n % 2u, x_zero);
    }
    if (step > 0u) {
      var run = array<vec2<f16>, 16u * TALL>();
      for (var i = 0u; i < PAIRS; i++) {
        let b0 = tile[2u * (base + STAGED + i * SIDE + column)];
        let b1 = tile[2u * (base + STAGED + i * SIDE + column) + 1u];
        //#unroll
        for (var t = 0u; t < TALL; t++) {
          let at = 2u * (base + i * SIDE + (row + t * HIGH + i) % SIDE);
          //#unroll
          for (var r = 0u; r < 2u; r++) {
            let a = tile[at + r];
            let upper = 16u * t + 8u * r;
            run[upper] = fma(a.xy, b0.xy, run[upper]);
            run[upper + 1u] = fma(a.xy, b0.zw, run[upper + 1u]);
            run[upper + 2u] = fma(a.xy, b1.xy, run[upper + 2u]);
            run[upper + 3u] = fma(a.xy, b1.zw, run[upper + 3u]);
            run[upper + 4u] = fma(a.zw, b0.xy, run[upper + 4u]);
            run[upper + 5u] = fma(a.zw, b0.zw, run[upper + 5u]);
            run[upper + 6u] = fma(a.zw, b1.xy, run[upper + 6u]);
            run[upper + 7u] = fma(a.zw, b1.zw, run[upper + 7u]);
          }
        }
      }
      //#unroll
      for (var i = 0u; i < 4u * TALL; i++) {
        sums[i] += vec4<ACC>(
          sum_of(run[4u * i]), sum_of(run[4u * i + 1u]), sum_of(run[4u * i + 2u]), sum_of(run[4u * i + 3u]));
      }
    }
    if (step >= params.steps) { break; }
    workgroupBarrier();
    for (var half = 0u; half < 2u; half++) {
      let w_at = base + w_k * SIDE + (w_row + half * (SIDE / 2u) + w_k) % SIDE;
      stage(w_at, w_next[2u * half], w_next[2u * half + 1u]);
      let x_at = base + STAGED + (row + half * 8u) * SIDE + column;
      stage(x_at, x_next[2u * half], x_next[2u * half + 1u]);
    }
    workgroupBarrier();
    k += 2u * PAIRS * SLICES;
  }
