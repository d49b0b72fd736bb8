// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]) for skinny products (few m): every element of b is read once.
//
// b as [k, n]: COLS invocations side by side take four columns each, SHARES of them split k.
// TRANS_B, b as [n, k]: COLS columns, SHARES invocations side by side split k, four elements at a time.
// SWAPPED: the matrix named b is the left one and n counts rows: the product of a matrix and a vector.
// VEC_A, VEC_B, VEC_Y: rows are whole vec4s. a's element (m, k) is at m * a_row + k * a_step.
//#tensors a, b -> y
//#type T = y
const M: u32 = 1u;
const COLS: u32 = 8u;
const SHARES: u32 = 32u;

struct Params {
  n: u32,
  k: u32,
  a_row: u32,
  a_step: u32,
  blocks: u32,
  groups: u32,
//#include batch_fields
}

//#if SUBGROUP
//#if TRANS_B
alias Share = T;
//#else
alias Share = vec4<T>;
//#endif
const WG: u32 = COLS * SHARES;
const LANES: u32 = SHARES;

fn combine_shares(a: Share, b: Share) -> Share { return a + b; }

//#include lanes
//#elif TRANS_B
var<workgroup> parts: array<T, COLS * SHARES>;
//#else
var<workgroup> parts: array<vec4<T>, COLS * SHARES>;
//#endif

//#include finish_quad

//#include batch_base

@compute @workgroup_size(COLS * SHARES)
//#include skinny_place

//#if TRANS_B
  let share = lane % SHARES;
  let col = block * COLS + lane / SHARES;
  let row_b = base_b + min(col, params.n - 1u) * params.k;
  var sums: array<T, M>;
  for (var k = share * 4u; k < params.k; k += SHARES * 4u) {
//#if VEC_B
    let right = vec4<T>(load4_b((row_b + k) >> 2u));
//#else
    let at = row_b + k;
    var right = vec4<T>(T(load_b(at)), T(load_b(at + 1u)), T(load_b(at + 2u)), T(load_b(at + 3u)));
    right = select(vec4<T>(), right, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
//#endif
    //#unroll
    for (var m = 0u; m < M; m++) {
      let at_a = base_a + m * params.a_row + k * params.a_step;
//#if VEC_A
      var left = vec4<T>(load4_a(at_a >> 2u));
//#else
      var left = vec4<T>(
        T(load_a(at_a)), T(load_a(at_a + params.a_step)),
        T(load_a(at_a + 2u * params.a_step)), T(load_a(at_a + 3u * params.a_step)));
//#endif
//#if !VEC_B
      left = select(vec4<T>(), left, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
//#endif
      sums[m] += dot(left, right);
    }
  }
//#else
  let share = lane / COLS;
  let col = (block * COLS + lane % COLS) * 4u;
  var sums: array<vec4<T>, M>;
  for (var k0 = share; k0 < params.k; k0 += 4u * SHARES) {
    //#unroll
    for (var u = 0u; u < 4u; u++) {
      let k = min(k0 + u * SHARES, params.k - 1u);
      let real = k0 + u * SHARES < params.k;
//#if VEC_B
      let right = vec4<T>(load4_b((base_b + k * params.n + min(col, params.n - 4u)) >> 2u));
//#else
      let at = base_b + k * params.n;
      let last = params.n - 1u;
      let right = vec4<T>(
        T(load_b(at + min(col, last))), T(load_b(at + min(col + 1u, last))),
        T(load_b(at + min(col + 2u, last))), T(load_b(at + min(col + 3u, last))));
//#endif
      //#unroll
      for (var m = 0u; m < M; m++) {
        let left = T(load_a(base_a + m * params.a_row + k * params.a_step));
        sums[m] += select(vec4<T>(), left * right, real);
      }
    }
  }
//#endif

  //#unroll
  for (var m = 0u; m < M; m++) {
//#if SUBGROUP
    let total = reduced_lanes(sums[m], lane);
    if (share == 0u && col < params.n) { put(batch * M + m, col, total); }
//#if ACROSS
    if (m + 1u < M) { workgroupBarrier(); }
//#endif
//#else
    parts[lane] = sums[m];
    workgroupBarrier();
    for (var width = SHARES / 2u; width > 0u; width >>= 1u) {
//#if TRANS_B
      if (share < width) { parts[lane] += parts[lane + width]; }
//#else
      if (share < width) { parts[lane] += parts[lane + width * COLS]; }
//#endif
      workgroupBarrier();
    }
    if (share == 0u && col < params.n) { put(batch * M + m, col, parts[lane]); }
    workgroupBarrier();
//#endif
  }
}

//#if TRANS_B
fn put(row: u32, col: u32, sum: T) {
//#if SWAPPED
  store_y(row * params.n + col, finish(vec4<T>(sum), row * params.n + col, 0u)[0]);
//#else
  // finish is given whole quads of columns; of this one, only the lane of `col` is a result.
  store_y(row * params.n + col, finish(vec4<T>(sum), row, col & ~3u)[col & 3u]);
//#endif
}
//#else
fn put(row: u32, col: u32, sum: vec4<T>) {
  let at = row * params.n + col;
//#if SWAPPED
  let v = vec4(
    finish(vec4<T>(sum[0]), at, 0u)[0], finish(vec4<T>(sum[1]), at + 1u, 0u)[0],
    finish(vec4<T>(sum[2]), at + 2u, 0u)[0], finish(vec4<T>(sum[3]), at + 3u, 0u)[0]);
//#else
  let v = finish(sum, row, col);
//#endif
//#include store_quad
}
//#endif
