// y[b, m, n] = finish(sum over k of (a[b, m, k] - a_zero) * (b[b, k, n] - b_zero)) for M rows, M at most eight: bytes, every
// one of b read once, summed exactly in 32 bits.
//
// A workgroup makes COLS quads of columns; SHARES invocations share the k of each and add up in a tree. Zero points are
// taken off every share: matmul_integer_tiled.wgsl has the formula. CENTRED_A, CENTRED_B: as there.
//#tensors a, b, a_zero, b_zero -> y
const M: u32 = 1u;
const COLS: u32 = 8u;
const SHARES: u32 = 32u;
const ONES: u32 = 0x01010101u;

alias T = i32;

struct Params {
  n: u32,
  k: u32,
  words: u32,
  blocks: u32,
  groups: u32,
  a_zero_stride: u32,
  offset_a: i32,
  offset_b: i32,
  b_zero_stride: u32,
//#include batch_fields
}

var<workgroup> parts: array<vec4<i32>, COLS * SHARES>;

//#include finish_quad

//#include integer_operands
//#include put_quad

@compute @workgroup_size(COLS * SHARES)
//#include skinny_place
  // Neighbours read what lies side by side: columns, or k where b is transposed.
//#if TRANS_B
  let share = lane % SHARES;
  let quad = lane / SHARES;
  let other = 1u;
//#else
  let share = lane / COLS;
  let quad = lane % COLS;
  let other = COLS;
//#endif
  let col = (block * COLS + quad) * 4u;

  var sums: array<vec4<i32>, M>;
  var row_sums: array<i32, M>;
  var column_sum = vec4<i32>();
  for (var word = share; word < params.words; word += SHARES) {
    let right = columns_b(base_b, word, col);
//#if CENTRED_A
    column_sum += vec4<i32>(dot4(right[0], ONES), dot4(right[1], ONES), dot4(right[2], ONES), dot4(right[3], ONES));
//#endif
    //#unroll
    for (var m = 0u; m < M; m++) {
      let left = word_a(base_a, m, word);
      sums[m] += vec4<i32>(dot4(left, right[0]), dot4(left, right[1]), dot4(left, right[2]), dot4(left, right[3]));
//#if CENTRED_B
      row_sums[m] += dot4(left, ONES);
//#endif
    }
  }
  let zero_b = zeros_b(col);
  //#unroll
  for (var m = 0u; m < M; m++) {
    var part = sums[m];
//#if CENTRED_A
    part -= zero_a(m) * column_sum;
    if (share == 0u) { part += zero_a(m) * i32(params.k) * zero_b; }
//#endif
//#if CENTRED_B
    part -= row_sums[m] * zero_b;
//#endif
    parts[lane] = part;
    workgroupBarrier();
    for (var width = SHARES / 2u; width > 0u; width >>= 1u) {
      if (share < width) { parts[lane] += parts[lane + width * other]; }
      workgroupBarrier();
    }
    if (share == 0u && col < params.n) { put(batch * M + m, col, parts[lane]); }
    workgroupBarrier();
  }
}
