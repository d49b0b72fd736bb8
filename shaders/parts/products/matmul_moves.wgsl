// What an invocation moves of the step at `k0`, into registers.
  //#unroll
  for (var i = 0u; i < MOVES_A; i++) {
    let at = from_a(t + i * THREADS);
    next_a[i] = quad_a(base_a, m0 + at.x, k0 + at.y);
  }
  //#unroll
  for (var i = 0u; i < MOVES_B; i++) {
    let at = from_b(t + i * THREADS);
    next_b[i] = quad_b(base_b, k0 + at.y, n0 + at.x);
  }
