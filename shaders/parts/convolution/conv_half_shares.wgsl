// The sums of all slices, in the first one.
  let mine = (lane % THREADS) * 4u;
  if (slice != 0u) {
    //#unroll
    for (var r = 0u; r < 4u; r++) {
      shares[(slice - 1u) * THREADS * 4u + mine + r] = sums[r];
    }
  }
  workgroupBarrier();
  if (slice != 0u) { return; }
  for (var s = 0u; s < SLICES - 1u; s++) {
    //#unroll
    for (var r = 0u; r < 4u; r++) {
      sums[r] += shares[s * THREADS * 4u + mine + r];
    }
  }
