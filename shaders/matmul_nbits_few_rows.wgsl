// y[m, n] = finish(sum over k of a[m, k] * (b[n, k] - zero) * scale) for few rows: every weight is read once, as it is stored.
//
// b is [n][blocks][BLOCK weights of BITS bits, low bits first]. A chunk is what one load brings: UNIT words, never more
// than a block, so it has one scale. LANES invocations side by side deal the chunks of a column out among them; each
// takes COLS columns at a time, whose weights meet the same piece of a. STEPS pieces, of a chunk for every lane, are staged
// in workgroup memory at a time for ROWS rows. The order of a result's sum depends on LANES and CHUNK alone: the same bits for any ROWS.
//
// VEC_A, VEC_Y: rows are whole vec4s. ZEROS: packed zero points, each row on a byte. FLOAT_ZEROS: one float each.
// EXPERTS: every row has a matrix of its own, number `experts[row]` of b; `share` rows in a row read one row of a. ROWS is 1.
// PAIRED: columns 2j and 2j + 1 of the product become column j of y, by `pair`.
// NORM: rows of a are x * gain / sqrt(mean(x^2) + epsilon) of x, normalised on the way; the sums are divided at the end.
// SUBGROUP: invocations in a row that exchange numbers without workgroup memory; the sums have the same order.
// CODES: b holds codes of a table (NF4, or FP4 without NF4), high bits of a byte first, scaled by blocks that run over all of b.
//#tensors a, b, scales, zeros, experts, gain -> y
//#type T = y
//#variants UNIT4=1,ROWS=4,COLS=4,VEC_A=1,VEC_Y=1 b=uint32 zeros=uint8 | UNIT4=1,ZEROS=1,VEC_A=1,VEC_Y=1,COLS=2 b=uint32 zeros=uint8
//#variants UNIT4=1,ROWS=4,VEC_A=1,PAIRED=1 b=uint32 | UNIT4=1,VEC_A=1,PAIRED=1 b=uint32 y=float16
//#variants UNIT4=1,ROWS=4,COLS=2,VEC_A=1,VEC_Y=1,NORM=1 b=uint32 | UNIT4=1,NORM=1,PAIRED=1 b=uint32 a=float16 gain=float16 y=float16
//#variants UNIT4=1,COLS=2,LANES=64,VEC_A=1,VEC_Y=1,NORM=1,SUBGROUP=32,STEPS=3 b=uint32 | UNIT4=1,ROWS=4,LANES=16,SUBGROUP=32 b=uint32
//#variants UNIT4=1,EXPERTS=1,ZEROS=1 b=uint32 zeros=uint8 experts=uint32
//#variants UNIT=2,UNIT2=1,CHUNK=32,BITS=2,BLOCK=32,BITS2=1,FLOAT_ZEROS=1 b=uint64 scales=float16 zeros=float16
//#variants UNIT=1,CHUNK=16,BITS=2,BLOCK=16,BITS2=1,ZEROS=1 b=uint32 zeros=uint8 a=bfloat16 y=bfloat16 scales=bfloat16
//#variants UNIT=4,UNIT4=1,CHUNK=16,BITS=8,BLOCK=32,BITS8=1,LANES=64 b=uint32 a=float16 y=float16 | UNIT4=1,CODES=1,NF4=1 b=uint32 | UNIT4=1,CODES=1 b=uint32
const BITS: u32 = 4u;
const BLOCK: u32 = 32u;
const UNIT: u32 = 4u;
const CHUNK: u32 = 32u;
const LANES: u32 = 32u;
const THREADS: u32 = 256u;
const COLS: u32 = 1u;
const ROWS: u32 = 1u;
const STEPS: u32 = 1u;
const SUBGROUP: u32 = 0u;

const QUADS: u32 = CHUNK / 4u;
const PER: u32 = 8u / BITS;
const WIDE: u32 = THREADS / LANES * COLS;
const PIECE: u32 = LANES * QUADS;
const HELD: u32 = (ROWS * PIECE + THREADS - 1u) / THREADS;
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
  pad0: u32,
  pad1: u32,
//#endif
//#if NORM
  epsilon: f32,
  pad0: u32,
  pad1: u32,
  pad2: u32,
//#endif
}

// Pieces of a; in the end the sums of every invocation, and behind them (NORM) the squares of each lane, a row a component.
var<workgroup> tile: array<vec4<T>, max(STEPS * ROWS * PIECE, COLS * THREADS + LANES)>;

fn finish(value: vec4<T>, row: u32, col: u32) -> vec4<T> {
  return value;
}

//#if PAIRED
fn pair(in0: f32, in1: f32) -> f32 {
  return in0;
}
//#endif

fn row_a(row: u32) -> u32 {
//#if EXPERTS
  return row / params.share;
//#else
  return row;
//#endif
}

// a[row, k .. k + 3], zero past the end.
fn quad_a(row: u32, k: u32) -> vec4<T> {
//#if VEC_A
  let v = vec4<T>(load4_a((row * params.k + min(k, params.k - 4u)) >> 2u));
//#else
  let at = row * params.k;
  let last = params.k - 1u;
  let v = vec4<T>(
    T(load_a(at + min(k, last))), T(load_a(at + min(k + 1u, last))),
    T(load_a(at + min(k + 2u, last))), T(load_a(at + min(k + 3u, last))));
//#endif
  return select(vec4<T>(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.k));
}

// The vec4 number `i` of the piece of a that begins at chunk `first`.
fn piece_a(row0: u32, first: u32, i: u32) -> vec4<T> {
  return quad_a(row_a(min(row0 + i / PIECE, params.m - 1u)), first * CHUNK + i % PIECE * 4u);
}

//#if NORM
// What the vec4 `piece_a` gives is multiplied by.
fn piece_gain(first: u32, i: u32) -> vec4<T> {
  let k = first * CHUNK + i % PIECE * 4u;
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

fn chunk_b(at: u32) -> array<u32, UNIT> {
//#if EXPERTS
  let i = min(at, params.matrices * params.n * params.chunks - 1u);
//#else
  let i = min(at, params.n * params.chunks - 1u);
//#endif
//#if UNIT4
  let w = load4_b(i);
  return array<u32, UNIT>(w.x, w.y, w.z, w.w);
//#else
//#if UNIT2
  let w = load_b(i);
  return array<u32, UNIT>(w.x, w.y);
//#else
  return array<u32, UNIT>(load_b(i));
//#endif
//#endif
}

// The scale of chunk `at` of column `n`; past the end that of the last.
fn scale_b(n: u32, at: u32) -> T {
  let chunk = min(at, params.chunks - 1u);
//#if CODES
  return T(load_scales((n * params.chunks + chunk) / (BLOCK / CHUNK)));
//#else
  return T(load_scales(n * params.blocks + chunk / (BLOCK / CHUNK)));
//#endif
}

// The zero point of chunk `at` of column `n`; past the end that of the last.
fn zero_b(n: u32, at: u32) -> T {
  let block = min(at, params.chunks - 1u) / (BLOCK / CHUNK);
//#if FLOAT_ZEROS
  return T(load_zeros(n * params.blocks + block));
//#else
//#if ZEROS
  let bit = block * BITS;
  return T((load_zeros(n * params.zero_pitch + (bit >> 3u)) >> (bit & 7u)) & MASK);
//#else
  return T(1u << (BITS - 1u));
//#endif
//#endif
}

// What is subtracted from the bits of weights whose zero point is `zero`.
fn base_b(zero: T) -> vec4<T> {
//#if BITS8
  return powers_8() + zero;
//#else
//#if BITS2
  return powers_2() + zero;
//#else
  return powers_4() + zero;
//#endif
//#endif
}

// The four weights in the low bits of `word`.
fn quad_b(word: u32, base: vec4<T>) -> vec4<T> {
//#if CODES
//#if NF4
  return nf4_quad(word);
//#else
  return fp4_quad(word);
//#endif
//#else
//#if BITS8
  return weights_8(word, base);
//#else
//#if BITS2
  return weights_2(word, base);
//#else
  return weights_4(word, base);
//#endif
//#endif
//#endif
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let group = workgroup_index(wid, nwg);
  if (group >= params.groups) { return; }
  let lane = local % LANES;
  let strip = group / params.row_groups;
  let row0 = (group - strip * params.row_groups) * ROWS;
  let col0 = strip * WIDE + local / LANES * COLS;
//#if EXPERTS
  let first_n = min(load_experts(row0), params.matrices - 1u) * params.n;
  let last = first_n + params.n - 1u;
  let n0 = first_n + col0;
//#else
  let last = params.n - 1u;
  let n0 = col0;
//#endif

  // The weights and scales of the next step, and the next pieces of a, are on their way while this one is computed.
  var next_a: array<array<vec4<T>, HELD>, STEPS>;
  //#unroll
  for (var s = 0u; s < STEPS; s++) {
    //#unroll
    for (var h = 0u; h < HELD; h++) {
      next_a[s][h] = piece_a(row0, s * LANES, local + h * THREADS);
    }
  }
//#if NORM
  var next_gain: array<array<vec4<T>, HELD>, STEPS>;
  var squares = array<T, HELD>();
  //#unroll
  for (var s = 0u; s < STEPS; s++) {
    //#unroll
    for (var h = 0u; h < HELD; h++) {
      next_gain[s][h] = piece_gain(s * LANES, local + h * THREADS);
    }
  }
//#endif
  var next: array<array<u32, UNIT>, COLS>;
  //#unroll
  for (var c = 0u; c < COLS; c++) {
    next[c] = chunk_b(min(n0 + c, last) * params.chunks + lane);
  }
  var next_scale: array<T, COLS>;
  var next_zero: array<T, COLS>;
  //#unroll
  for (var c = 0u; c < COLS; c++) {
    next_scale[c] = scale_b(min(n0 + c, last), lane);
    next_zero[c] = zero_b(min(n0 + c, last), lane);
  }
  var sums: array<vec4<T>, COLS>;
  for (var first = 0u; first < params.chunks; first += STEPS * LANES) {
    //#unroll
    for (var s = 0u; s < STEPS; s++) {
      //#unroll
      for (var h = 0u; h < HELD; h++) {
        let i = local + h * THREADS;
        let g = i % PIECE;
        // Swizzled, so that neither the writes nor the reads of a chunk by neighbours meet in one bank.
        if (i < ROWS * PIECE) {
          let at = s * ROWS * PIECE + i - g + (g % QUADS) * LANES + ((g / QUADS) ^ (g % QUADS));
//#if NORM
          tile[at] = next_a[s][h] * next_gain[s][h];
          squares[h] += dot(next_a[s][h], next_a[s][h]);
//#else
          tile[at] = next_a[s][h];
//#endif
        }
      }
    }
    workgroupBarrier();
    if (first + STEPS * LANES < params.chunks) {
      //#unroll
      for (var s = 0u; s < STEPS; s++) {
        //#unroll
        for (var h = 0u; h < HELD; h++) {
          next_a[s][h] = piece_a(row0, first + (STEPS + s) * LANES, local + h * THREADS);
//#if NORM
          next_gain[s][h] = piece_gain(first + (STEPS + s) * LANES, local + h * THREADS);
//#endif
        }
      }
    }
    for (var s = 0u; s < STEPS; s++) {
      let words = next;
      let scale = next_scale;
      let zero = next_zero;
      let step = first + s * LANES;
      let chunk = step + lane;
      if (step >= params.chunks) { break; }
      if (step + LANES < params.chunks) {
        //#unroll
        for (var c = 0u; c < COLS; c++) {
          next[c] = chunk_b(min(n0 + c, last) * params.chunks + chunk + LANES);
          next_scale[c] = scale_b(min(n0 + c, last), chunk + LANES);
          next_zero[c] = zero_b(min(n0 + c, last), chunk + LANES);
        }
      }
      if (chunk < params.chunks) {
        var parts = array<array<T, ROWS>, COLS>();
        var base: array<vec4<T>, COLS>;
        //#unroll
        for (var c = 0u; c < COLS; c++) {
//#if FLOAT_ZEROS
          base[c] = base_b(0.0);
//#else
          base[c] = base_b(zero[c]);
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
            let right = quad_b(words[c][q / PER] >> (q % PER * 4u * BITS), base[c]) - zero[c];
//#else
            let right = quad_b(words[c][q / PER] >> (q % PER * 4u * BITS), base[c]);
//#endif
            //#unroll
            for (var r = 0u; r < ROWS; r++) {
              parts[c][r] += dot(left[r], right);
            }
          }
        }
        //#unroll
        for (var c = 0u; c < COLS; c++) {
          //#unroll
          for (var r = 0u; r < ROWS; r++) {
            sums[c][r] += parts[c][r] * scale[c];
          }
        }
      }
    }
    workgroupBarrier();
  }

//#if NORM
  //#unroll
  for (var h = 0u; h < HELD; h++) {
    if (local + h * THREADS < ROWS * PIECE) { tile[local + h * THREADS] = vec4<T>(squares[h]); }
  }
  workgroupBarrier();
  var square = vec4<T>();
  if (local < LANES) {
    for (var i = 0u; i < ROWS * QUADS; i++) {
      square[i / QUADS] += tile[i * LANES + local].x;
    }
  }
  workgroupBarrier();
//#if !SUBGROUP
  if (local < LANES) { tile[COLS * THREADS + local] = square; }
//#endif
//#endif
//#if SUBGROUP
  // Halves that lie in different subgroups meet in workgroup memory, the others by shuffles.
  if (LANES > SUBGROUP) {
//#if NORM
    if (local < LANES) { tile[COLS * THREADS + local] = square; }
//#endif
    //#unroll
    for (var c = 0u; c < COLS; c++) {
      tile[c * THREADS + local] = sums[c];
    }
    workgroupBarrier();
    for (var width = LANES / 2u; width >= SUBGROUP; width >>= 1u) {
      if (lane < width) {
        //#unroll
        for (var c = 0u; c < COLS; c++) {
          sums[c] += tile[c * THREADS + local + width];
          tile[c * THREADS + local] = sums[c];
        }
//#if NORM
        if (local < width) {
          square += tile[COLS * THREADS + local + width];
          tile[COLS * THREADS + local] = square;
        }
//#endif
      }
      workgroupBarrier();
    }
  }
  for (var width = min(LANES, SUBGROUP) / 2u; width > 0u; width >>= 1u) {
    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      //#unroll
      for (var c = 0u; c < COLS; c++) {
        sums[c][r] += subgroupShuffleDown(sums[c][r], width);
      }
//#if NORM
      square[r] += subgroupShuffleDown(square[r], width);
//#endif
    }
  }
//#if NORM
  if (local == 0u) { tile[COLS * THREADS] = square; }
//#endif
  if (lane == 0u) {
    //#unroll
    for (var c = 0u; c < COLS; c++) {
      tile[c * THREADS + local] = sums[c];
    }
  }
  workgroupBarrier();
//#else
  //#unroll
  for (var c = 0u; c < COLS; c++) {
    tile[c * THREADS + local] = sums[c];
  }
  workgroupBarrier();
  for (var width = LANES / 2u; width > 0u; width >>= 1u) {
    if (lane < width) {
      //#unroll
      for (var c = 0u; c < COLS; c++) {
        tile[c * THREADS + local] += tile[c * THREADS + local + width];
      }
//#if NORM
      if (local < width) { tile[COLS * THREADS + local] += tile[COLS * THREADS + local + width]; }
//#endif
    }
    workgroupBarrier();
  }
//#endif
  for (var i = local; i < WIDE / 4u * ROWS; i += THREADS) {
    let row = i / (WIDE / 4u);
    let quad = i - row * (WIDE / 4u);
    var sum = vec4<T>(
      total(quad * 4u)[row], total(quad * 4u + 1u)[row], total(quad * 4u + 2u)[row], total(quad * 4u + 3u)[row]);
//#if NORM
    sum *= inverseSqrt(tile[COLS * THREADS][row] / T(params.k) + T(params.epsilon));
//#endif
    put(row0 + row, strip * WIDE + quad * 4u, sum);
  }
}

// The sums of column `col` of the workgroup, a row a lane.
fn total(col: u32) -> vec4<T> {
  return tile[(col % COLS) * THREADS + col / COLS * LANES];
}

fn put(row: u32, col: u32, sum: vec4<T>) {
  if (row >= params.m || col >= params.n) { return; }
//#if PAIRED
  let half = row * (params.n / 2u) + col / 2u;
  store_y(half, pair(sum[0], sum[1]));
  if (col + 2u < params.n) { store_y(half + 1u, pair(sum[2], sum[3])); }
//#else
  let v = finish(sum, row, col);
  let at = row * params.n + col;
//#if VEC_Y
  store4_y(at >> 2u, v[0], v[1], v[2], v[3]);
//#else
  store_y(at, v[0]);
  if (col + 1u < params.n) { store_y(at + 1u, v[1]); }
  if (col + 2u < params.n) { store_y(at + 2u, v[2]); }
  if (col + 3u < params.n) { store_y(at + 3u, v[3]); }
//#endif
//#endif
}
