// The end of a tiled product: shares of k, in `$shares`, are added, and `put` takes the results.
//#if STAGED
  if (slice > 0u) {
    //#unroll
    for (var i = 0u; i < RESULTS; i++) {
      $shares[i * THREADS + t] = sums[i];
    }
  }
  workgroupBarrier();
  if (slice > 0u) { return; }
  //#unroll
  for (var i = 0u; i < RESULTS; i++) {
    sums[i] += $shares[i * THREADS + t];
  }
//#elif SLICED
  if (slice > 0u) {
    for (var i = 0u; i < RESULTS; i++) { $shares[((slice - 1u) * RESULTS + i) * THREADS + t] = sums[i]; }
  }
  workgroupBarrier();
  if (slice > 0u) { return; }
  for (var s = 0u; s < SLICES - 1u; s++) {
    for (var i = 0u; i < RESULTS; i++) { sums[i] += $shares[(s * RESULTS + i) * THREADS + t]; }
  }
//#endif

//#if ROLLED
  let rows = select(ROWS, 0u, params.n == 0u);
  for (var r = 0u; r < rows; r++) {
//#else
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
//#endif
    let row = row_of(r, m0, ty);
//#if ROLLED
    if (row < params.m) {
      //#unroll
      for (var q = 0u; q < QUADS; q++) {
        put(plane, batch, row, n0 + (q * WIDE + tx) * 4u, sums[q]);
      }
    }
    //#unroll
    for (var i = 0u; i < RESULTS - QUADS; i++) {
      sums[i] = sums[i + QUADS];
    }
  }
//#else
    if (row < params.m) {
      //#unroll
      for (var q = 0u; q < QUADS; q++) {
        put(plane, batch, row, n0 + (q * WIDE + tx) * 4u, sums[r * QUADS + q]);
      }
    }
  }
//#endif
