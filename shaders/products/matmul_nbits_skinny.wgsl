// y[m, n] = finish(sum over k of a[m, k] * (b[n, k] - zero) * scale) for skinny products: every weight is read once, as stored.
//
// b is [n][blocks][BLOCK weights of BITS bits, low bits first]. A chunk is what one load brings: UNIT words, never more
// than a block, so it has one scale. LANES invocations side by side split the chunks of a column among them; each
// takes COLS columns at a time, whose weights meet the same piece of a. STEPS chunks for every lane are on their way at a
// time, while the piece of a that they meet is staged in workgroup memory for ROWS rows. The order of a result's sum depends
// on LANES and CHUNK alone (chunks of a lane, then neighbouring lanes in pairs): the same bits for any ROWS and SUBGROUP.
//
// VEC_A, VEC_Y: rows are whole vec4s. ZEROS: packed zero points, each row on a byte. FLOAT_ZEROS: one float each.
// ONCE: one piece is all of a row.
// EXPERTS: every row has a matrix of its own, number `experts[row]` of b; `share` rows in a row read one row of a. ROWS is 1.
// PAIRED: columns 2j and 2j + 1 of the product become column j of y, by `pair`.
// NORM: rows of a are x * gain / sqrt(mean(x^2) + epsilon) of x, normalised on the way; the sums are divided at the end.
// SHARES: a has an attention's partial results over SHARES shares of the keys, [share, batch, head, query, HEAD], reduced on the
// way as attention_merge does (HALF: and rounded to float16); stats and EMPTY_ZERO are as there.
// SHUFFLE: SUBGROUP invocations in a row, COLS of them at least, exchange numbers without workgroup memory; else SUBGROUP is 1.
// CODES: b holds codes of a table (NF4, or FP4 without NF4), high bits of a byte first, scaled by blocks that run over all of b.
//#tensors a, b, scales, zeros, experts, gain, stats -> y
//#type T = y
const BITS: u32 = 4u;
const BLOCK: u32 = 32u;
const UNIT: u32 = 4u;
const CHUNK: u32 = 32u;
const LANES: u32 = 32u;
const THREADS: u32 = 256u;
const COLS: u32 = 1u;
const ROWS: u32 = 1u;
const STEPS: u32 = 1u;
const SUBGROUP: u32 = 1u;
const SHARES: u32 = 0u;
const HEAD: u32 = 64u;
const LOWEST: f32 = -3.4028234663852886e38;

const QUADS: u32 = CHUNK / 4u;
const PER: u32 = 8u / BITS;
const WIDE: u32 = THREADS / LANES * COLS;
const PIECE: u32 = LANES * QUADS;
const STAGED: u32 = STEPS * ROWS * PIECE;
const HELD: u32 = (STAGED + THREADS - 1u) / THREADS;
// Lanes that exchange numbers, and how many such sides share a column.
const SIDE: u32 = min(LANES, SUBGROUP);
const SIDES: u32 = LANES / SIDE;
// Numbers that sides make: a sum for each row and column, and (NORM) one of squares for each row.
const SUMS: u32 = ROWS * WIDE;
//#if NORM
const MEANS: u32 = ROWS;
//#else
const MEANS: u32 = 0u;
//#endif
const MASK: u32 = (1u << BITS) - 1u;

struct Params {
  m: u32,
  n: u32,
  k: u32,
  chunks: u32,
  blocks: u32,
  zero_pitch: u32,
  row_groups: u32,
  groups: u32,
//#if EXPERTS
  matrices: u32,
  share: u32,
//#endif
//#if NORM
  epsilon: f32,
//#endif
//#if SHARES
  heads: u32,
  queries: u32,
//#endif
}

// The piece of a, each chunk's vec4s LANES apart and swizzled: neither writing nor reading meets in one bank.
var<workgroup> tile: array<vec4<T>, STAGED>;
// What sides summed up: SIDES numbers for each of SUMS, then of MEANS.
var<workgroup> shares: array<T, (SUMS + MEANS) * SIDES>;
//#if NORM
var<workgroup> squares: array<T, STAGED>;
//#endif

//#include finish_quad

fn row_a(row: u32) -> u32 {
//#if EXPERTS
  return row / params.share;
//#else
  return row;
//#endif
}

//#if SHARES
//#include reduced_partials
//#endif

//#include nbits_row_quads

// The row, of ROWS, and k of vec4 `i` of the piece of a that begins at chunk `first`; and where it is staged.
fn place(first: u32, i: u32) -> vec3<u32> {
  let g = i % PIECE;
  let k = (first + i / (ROWS * PIECE) * LANES) * CHUNK + g * 4u;
  return vec3<u32>(i / PIECE % ROWS, k, i - g + (g % QUADS) * LANES + ((g / QUADS) ^ (g % QUADS)));
}

// Vec4 `i` of the piece of a that begins at chunk `first`.
fn piece_a(row0: u32, first: u32, i: u32) -> vec4<T> {
  let at = place(first, i);
  return quad_a(row_a(min(row0 + at.x, params.m - 1u)), at.y);
}

//#if NORM
// What the vec4 `piece_a` gives is multiplied by.
fn piece_gain(first: u32, i: u32) -> vec4<T> {
  let k = place(first, i).y;
  let last = params.k - 1u;
//#if VEC_A
  return vec4<T>(load4_gain(min(k, last) >> 2u));
//#else
  return vec4<T>(
    T(load_gain(min(k, last))), T(load_gain(min(k + 1u, last))),
    T(load_gain(min(k + 2u, last))), T(load_gain(min(k + 3u, last))));
//#endif
}
//#endif

//#include nbits_chunks
//#if SHUFFLE
// Two sums of lanes `width` apart, of which lanes with that bit keep the second.
fn fold(first: T, second: T, lane: u32, width: u32) -> T {
  let high = (lane & width) != 0u;
  return select(first, second, high) + subgroupShuffleXor(select(second, first, high), width);
}

// Which of COLS sums lane `lane` keeps: the lowest bit says which half of them, the next which quarter.
fn kept(lane: u32) -> u32 {
  return extractBits(lane, 0u, 1u) * (COLS / 2u) + extractBits(lane, 1u, 1u) * (COLS / 4u)
    + extractBits(lane, 2u, 1u) * (COLS / 8u);
}
//#endif

@compute @workgroup_size(THREADS)
//#include numbered_workgroup name=main place=local number=group count=params.groups
  let lane = local % LANES;
  let strip = group / params.row_groups;
  let row0 = (group - strip * params.row_groups) * ROWS;
//#if EXPERTS
  let first_n = min(load_experts(row0), params.matrices - 1u) * params.n;
//#else
  let first_n = 0u;
//#endif
  let last = first_n + params.n - 1u;
  let n0 = first_n + strip * WIDE + local / LANES * COLS;

  // Weights and scales are on their way while what they meet is staged, or their predecessors are computed.
  var next: array<Chunks, STEPS>;
  //#unroll
  for (var s = 0u; s < STEPS; s++) {
    next[s] = chunks_b(n0, last, s * LANES + lane);
  }
  var next_a: array<vec4<T>, HELD>;
  //#unroll
  for (var h = 0u; h < HELD; h++) {
    next_a[h] = piece_a(row0, 0u, local + h * THREADS);
  }
//#if NORM
  var next_gain: array<vec4<T>, HELD>;
  //#unroll
  for (var h = 0u; h < HELD; h++) {
    next_gain[h] = piece_gain(0u, local + h * THREADS);
  }
  var square: array<T, ROWS>;
//#endif
  var sums: array<array<T, ROWS>, COLS>;
//#if ONCE
  {
    const first = 0u;
//#else
  for (var first = 0u; first < params.chunks; first += STEPS * LANES) {
//#endif
    //#unroll
    for (var h = 0u; h < HELD; h++) {
      let i = local + h * THREADS;
      if (i < STAGED) {
        let to = place(first, i).z;
//#if NORM
        tile[to] = next_a[h] * next_gain[h];
        squares[to] = dot(next_a[h], next_a[h]);
//#else
        tile[to] = next_a[h];
//#endif
      }
    }
    workgroupBarrier();
//#if NORM
    if (local < LANES) {
      //#unroll
      for (var s = 0u; s < STEPS; s++) {
        //#unroll
        for (var q = 0u; q < QUADS; q++) {
          //#unroll
          for (var r = 0u; r < ROWS; r++) {
            square[r] += squares[(s * ROWS + r) * PIECE + q * LANES + (lane ^ q)];
          }
        }
      }
    }
//#endif
    let chunks = next;
//#if !ONCE
    if (first + STEPS * LANES < params.chunks) {
      //#unroll
      for (var s = 0u; s < STEPS; s++) {
        next[s] = chunks_b(n0, last, first + (STEPS + s) * LANES + lane);
      }
      //#unroll
      for (var h = 0u; h < HELD; h++) {
        next_a[h] = piece_a(row0, first + STEPS * LANES, local + h * THREADS);
      }
//#if NORM
      //#unroll
      for (var h = 0u; h < HELD; h++) {
        next_gain[h] = piece_gain(first + STEPS * LANES, local + h * THREADS);
      }
//#endif
    }
//#endif
    //#unroll
    for (var s = 0u; s < STEPS; s++) {
      var parts = array<array<T, ROWS>, COLS>();
      var base: array<vec4<T>, COLS>;
      //#unroll
      for (var c = 0u; c < COLS; c++) {
//#if FLOAT_ZEROS
        base[c] = base_b(0.0);
//#else
        base[c] = base_b(chunks[s].zero[c]);
//#endif
      }
      //#unroll
      for (var q = 0u; q < QUADS; q++) {
        var left: array<vec4<T>, ROWS>;
        //#unroll
        for (var r = 0u; r < ROWS; r++) {
          left[r] = tile[(s * ROWS + r) * PIECE + q * LANES + (lane ^ q)];
        }
        //#unroll
        for (var c = 0u; c < COLS; c++) {
//#if FLOAT_ZEROS
          let right = quad_b(chunks[s].words[c][q / PER] >> (q % PER * 4u * BITS), base[c]) - chunks[s].zero[c];
//#else
          let right = quad_b(chunks[s].words[c][q / PER] >> (q % PER * 4u * BITS), base[c]);
//#endif
          //#unroll
          for (var r = 0u; r < ROWS; r++) {
            parts[c][r] = fma(left[r].x, right.x, parts[c][r]);
            parts[c][r] = fma(left[r].y, right.y, parts[c][r]);
            parts[c][r] = fma(left[r].z, right.z, parts[c][r]);
            parts[c][r] = fma(left[r].w, right.w, parts[c][r]);
          }
        }
      }
      //#unroll
      for (var c = 0u; c < COLS; c++) {
        //#unroll
        for (var r = 0u; r < ROWS; r++) {
          sums[c][r] = fma(parts[c][r], chunks[s].scale[c], sums[c][r]);
        }
      }
    }
//#if !ONCE
    workgroupBarrier();
//#endif
  }

  let col0 = local / LANES * COLS;
  let side = lane / SIDE;
//#if SHUFFLE
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
    //#unroll
    for (var c = 0u; c < COLS / 2u; c++) {
      sums[c][r] = fold(sums[c][r], sums[c + COLS / 2u][r], lane, 1u);
    }
    //#unroll
    for (var c = 0u; c < COLS / 4u; c++) {
      sums[c][r] = fold(sums[c][r], sums[c + COLS / 4u][r], lane, 2u);
    }
    //#unroll
    for (var c = 0u; c < COLS / 8u; c++) {
      sums[c][r] = fold(sums[c][r], sums[c + COLS / 8u][r], lane, 4u);
    }
    for (var width = COLS; width < SIDE; width <<= 1u) {
      sums[0][r] += subgroupShuffleXor(sums[0][r], width);
    }
    if (lane % SIDE < COLS) { shares[(r * WIDE + col0 + kept(lane)) * SIDES + side] = sums[0][r]; }
  }
//#else
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
    //#unroll
    for (var c = 0u; c < COLS; c++) {
      shares[(r * WIDE + col0 + c) * SIDES + side] = sums[c][r];
    }
  }
//#endif
//#if NORM
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
//#if SHUFFLE
    for (var width = 1u; width < SIDE; width <<= 1u) {
      square[r] += subgroupShuffleXor(square[r], width);
    }
//#endif
    if (local < LANES) { shares[(SUMS + r) * SIDES + side] = square[r]; }
  }
//#endif
  workgroupBarrier();
  // Sides are added up as lanes are, neighbours first, until two are left.
  for (var width = 1u; 2u * width < SIDES; width <<= 1u) {
    for (var i = local; i < (SUMS + MEANS) * (SIDES / (2u * width)); i += THREADS) {
      shares[i * 2u * width] += shares[i * 2u * width + width];
    }
    workgroupBarrier();
  }
  for (var i = local; i < WIDE / 4u * ROWS; i += THREADS) {
    let row = i / (WIDE / 4u);
    let col = (i - row * (WIDE / 4u)) * 4u;
    let sum = row * WIDE + col;
    var value = vec4<T>(total(sum), total(sum + 1u), total(sum + 2u), total(sum + 3u));
//#if NORM
    value *= inverseSqrt(total(SUMS + row) / T(params.k) + T(params.epsilon));
//#endif
    put(row0 + row, strip * WIDE + col, value);
  }
}

// Number `sum`, of which two shares are left.
fn total(sum: u32) -> T {
  if (SIDES == 1u) { return shares[sum]; }
  return shares[sum * SIDES] + shares[sum * SIDES + SIDES / 2u];
}

//#include nbits_put
