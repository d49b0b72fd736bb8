// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]), ROWS rows an invocation, no workgroup memory. For targets
// whose invocations run one after the other.
//
// TRANS_B: b is [n, k], rows of a are contiguous, and an invocation makes four columns. Else it makes eight, and a's
// element (m, k) is at m * a_row + k * a_step. Four neighbours are one load at any address; those past the last column
// are not stored.
//#tensors a, b -> y
//#type T = y
const ROWS: u32 = 4u;

struct Params {
  n: u32,
  k: u32,
  m: u32,
  columns: u32,         // of an invocation's width, in a row
  rows: u32,            // of ROWS
  a_row: u32,
  a_step: u32,
  jobs: u32,            // columns * rows * batches
//#include batch_fields
}

//#include finish_quad

//#include batch_base

//#include put_quad

fn quad_a(i: u32) -> vec4<T> {
  return vec4<T>(load_a(i), load_a(i + 1u), load_a(i + 2u), load_a(i + 3u));
}

fn quad_b(i: u32) -> vec4<T> {
  return vec4<T>(load_b(i), load_b(i + 1u), load_b(i + 2u), load_b(i + 3u));
}

@compute @workgroup_size(64)
//#include invocation job=job size=64u jobs=jobs
  let column = job / params.rows % params.columns;
  let batch = job / (params.rows * params.columns);
  let m = job % params.rows * ROWS;
  let top = params.m - 1u;
  let base_a = batch_base(batch, params.a_strides);
  let base_b = batch_base(batch, params.b_strides);
  var at: array<u32, ROWS>;
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
    at[r] = base_a + min(m + r, top) * params.a_row;
  }
  var made: array<vec4<T>, 2u * ROWS>;
//#if TRANS_B
  let n = column * 4u;
  let last = params.n - 1u;
  let c0 = base_b + n * params.k;
  let c1 = base_b + min(n + 1u, last) * params.k;
  let c2 = base_b + min(n + 2u, last) * params.k;
  let c3 = base_b + min(n + 3u, last) * params.k;
  var sums: array<vec4<T>, 4u * ROWS>;
  let whole = params.k & ~3u;
  for (var k = 0u; k < whole; k += 4u) {
    let b0 = quad_b(c0 + k);
    let b1 = quad_b(c1 + k);
    let b2 = quad_b(c2 + k);
    let b3 = quad_b(c3 + k);
    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      let left = quad_a(at[r] + k);
      sums[4u * r] += left * b0;
      sums[4u * r + 1u] += left * b1;
      sums[4u * r + 2u] += left * b2;
      sums[4u * r + 3u] += left * b3;
    }
  }
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
    let s0 = sums[4u * r];
    let s1 = sums[4u * r + 1u];
    let s2 = sums[4u * r + 2u];
    let s3 = sums[4u * r + 3u];
    made[r] = vec4<T>(
      (s0.x + s0.y) + (s0.z + s0.w), (s1.x + s1.y) + (s1.z + s1.w),
      (s2.x + s2.y) + (s2.z + s2.w), (s3.x + s3.y) + (s3.z + s3.w));
  }
  for (var k = whole; k < params.k; k++) {
    let right = vec4<T>(load_b(c0 + k), load_b(c1 + k), load_b(c2 + k), load_b(c3 + k));
    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      made[r] += vec4<T>(load_a(at[r] + k)) * right;
    }
  }
//#else
  let n = column * 8u;
  var sums: array<vec4<T>, 2u * ROWS>;
  var b_at = base_b + n;
  for (var k = 0u; k < params.k; k++) {
    let b0 = quad_b(b_at);
    let b1 = vec4<T>(load_b(b_at + 4u), load_b(b_at + 5u), load_b(b_at + 6u), load_b(b_at + 7u));
    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      let left = vec4<T>(load_a(at[r]));
      sums[r] += left * b0;
      sums[ROWS + r] += left * b1;
      at[r] += params.a_step;
    }
    b_at += params.n;
  }
  //#unroll
  for (var i = 0u; i < 2u * ROWS; i++) {
    made[i] = sums[i];
  }
//#endif
  for (var r = 0u; r < min(ROWS, params.m - m); r++) {
    put(batch * params.m + m + r, n, made[r]);
//#if !TRANS_B
    if (n + 4u < params.n) { put(batch * params.m + m + r, n + 4u, made[ROWS + r]); }
//#endif
  }
}
