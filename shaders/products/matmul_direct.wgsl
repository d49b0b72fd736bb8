// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]), four rows (EIGHT: eight) of four columns an invocation,
// no workgroup memory. For adapters that run on a processor: its caches do what tiles in workgroup memory do on a GPU, and barriers
// between invocations are dear there.
//
// VEC_B: rows of b are whole vec4s. TRANS_B: b is [n, k]. a's element (m, k) is at m * a_row + k * a_step.
//#tensors a, b -> y
//#type T = y
struct Params {
  n: u32,
  k: u32,
  m: u32,
  columns: u32,
  rows: u32,
  a_row: u32,
  a_step: u32,
  jobs: u32,
//#include batch_fields
}

//#include finish_quad

//#include batch_base

// b[k, n .. n + 3]
fn quad_b(base: u32, k: u32, n: u32) -> vec4<T> {
//#if TRANS_B
  let last = params.n - 1u;
  return vec4<T>(
    T(load_b(base + n * params.k + k)), T(load_b(base + min(n + 1u, last) * params.k + k)),
    T(load_b(base + min(n + 2u, last) * params.k + k)), T(load_b(base + min(n + 3u, last) * params.k + k)));
//#elif VEC_B
  return vec4<T>(load4_b((base + k * params.n + n) >> 2u));
//#else
  let at = base + k * params.n;
  let last = params.n - 1u;
  return vec4<T>(
    T(load_b(at + n)), T(load_b(at + min(n + 1u, last))), T(load_b(at + min(n + 2u, last))),
    T(load_b(at + min(n + 3u, last))));
//#endif
}

//#include put_quad

@compute @workgroup_size(64)
//#include invocation job=job size=64u jobs=jobs
  let line = job / params.columns;
  let n = (job - line * params.columns) * 4u;
  let batch = line / params.rows;
//#if EIGHT
  let m = (line - batch * params.rows) * 8u;
//#else
  let m = (line - batch * params.rows) * 4u;
//#endif
  let top = params.m - 1u;
  let base_a = batch_base(batch, params.a_strides);
  let base_b = batch_base(batch, params.b_strides);
  let r0 = base_a + m * params.a_row;
  let r1 = base_a + min(m + 1u, top) * params.a_row;
  let r2 = base_a + min(m + 2u, top) * params.a_row;
  let r3 = base_a + min(m + 3u, top) * params.a_row;
  var s0 = vec4<T>();
  var s1 = vec4<T>();
  var s2 = vec4<T>();
  var s3 = vec4<T>();
//#if EIGHT
  let r4 = base_a + min(m + 4u, top) * params.a_row;
  let r5 = base_a + min(m + 5u, top) * params.a_row;
  let r6 = base_a + min(m + 6u, top) * params.a_row;
  let r7 = base_a + min(m + 7u, top) * params.a_row;
  var s4 = vec4<T>();
  var s5 = vec4<T>();
  var s6 = vec4<T>();
  var s7 = vec4<T>();
//#endif
  for (var k = 0u; k < params.k; k++) {
    let right = quad_b(base_b, k, n);
    let step = k * params.a_step;
    s0 += T(load_a(r0 + step)) * right;
    s1 += T(load_a(r1 + step)) * right;
    s2 += T(load_a(r2 + step)) * right;
    s3 += T(load_a(r3 + step)) * right;
//#if EIGHT
    s4 += T(load_a(r4 + step)) * right;
    s5 += T(load_a(r5 + step)) * right;
    s6 += T(load_a(r6 + step)) * right;
    s7 += T(load_a(r7 + step)) * right;
//#endif
  }
  // `finish` is there once, in a loop whose count compilers do not know.
//#if EIGHT
  let rows = min(8u, params.m - m);
//#else
  let rows = min(4u, params.m - m);
//#endif
  for (var r = 0u; r < rows; r++) {
    put(batch * params.m + m + r, n, s0);
    s0 = s1;
    s1 = s2;
    s2 = s3;
//#if EIGHT
    s3 = s4;
    s4 = s5;
    s5 = s6;
    s6 = s7;
//#endif
  }
}
