// Operands of the step at k0, four elements as they are stored.
  //#unroll
  for (var i = 0u; i < MOVES_A; i++) {
    let e = local + i * THREADS;
//#if TRANS_A
    next_a[i] = quad_a(base_a, m0 + e % A_LINE * 4u, k0 + e / A_LINE);
//#else
    next_a[i] = quad_a(base_a, m0 + e / A_LINE, k0 + e % A_LINE * 4u);
//#endif
  }
  //#unroll
  for (var i = 0u; i < MOVES_B; i++) {
    let e = local + i * THREADS;
//#if TRANS_B
    next_b[i] = quad_b(base_b, k0 + e % B_LINE * 4u, n0 + e / B_LINE);
//#else
    next_b[i] = quad_b(base_b, k0 + e / B_LINE, n0 + e % B_LINE * 4u);
//#endif
  }
