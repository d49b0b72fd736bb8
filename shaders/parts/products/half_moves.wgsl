  //#unroll
  for (var i = 0u; i < MOVES_A; i++) {
    let at = from_a(t + i * THREADS);
    next_a[2u * i] = quad_a(base_a, m0 + at.x, k0 + at.y);
//#if TRANS_A
    next_a[2u * i + 1u] = quad_a(base_a, m0 + at.x, k0 + at.y + 1u);
//#else
    next_a[2u * i + 1u] = quad_a(base_a, m0 + at.x + 1u, k0 + at.y);
//#endif
  }
  //#unroll
  for (var i = 0u; i < MOVES_B; i++) {
    let at = from_b(t + i * THREADS);
    next_b[2u * i] = quad_b(base_b, k0 + at.y, n0 + at.x);
//#if TRANS_B
    next_b[2u * i + 1u] = quad_b(base_b, k0 + at.y, n0 + at.x + 1u);
//#else
    next_b[2u * i + 1u] = quad_b(base_b, k0 + at.y + 1u, n0 + at.x);
//#endif
  }
