// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]) of float16, as matmul_tiled.wgsl, multiplied in float16.
//
// Staged tiles hold pairs of k: a lane of a vec2<f16> is an even k, the other one the odd k after it. So an invocation
// multiplies by whole vec2s, which GPUs do at twice the rate of float32, and no operand is broadcast to both lanes.
// Either lane sums the PAIRS products of a step in float16, beginning at 0. Then both are added to a sum in float32.
//
// Each sum of float16 has at most PAIRS terms: with u = 2^-11 and g = PAIRS u / (1 - PAIRS u), y is off by at most g
// times the sum of |a b| over k (Higham 2002, 3.1), in addition to what float32 sums lose, as long as no product or sum of
// PAIRS of them passes 65504. A product below 2^-14 is off by at most 2^-25.
enable f16;
//#tensors a, b, bias -> y
//#type T = y
//#include matmul_tile_shape
const TILE_K: u32 = 32u;
const PAIRS: u32 = TILE_K / 2u;
const A_PITCH: u32 = TILE_M / 2u + 1u;
const A_SIZE: u32 = PAIRS * A_PITCH;
//#if TRANS_B
const B_PITCH: u32 = TILE_N / 2u + 1u;
//#else
const B_PITCH: u32 = TILE_N / 2u;
//#endif
const B_SIZE: u32 = PAIRS * B_PITCH;
const MOVES_A: u32 = TILE_M * TILE_K / (8u * THREADS);
const MOVES_B: u32 = TILE_N * TILE_K / (8u * THREADS);

//#include half_operands
var<workgroup> tile_a: array<vec4<f16>, A_SIZE * SLICES>;
var<workgroup> tile_b: array<vec4<f16>, B_SIZE * SLICES>;

//#include half_stage t=a along=TRANS_A tile=TILE_M size=A_SIZE pitch=A_PITCH
//#include half_stage t=b along=!TRANS_B tile=TILE_N size=B_SIZE pitch=B_PITCH

//#if SHARES
var<workgroup> shares: array<vec4<T>, (SLICES - 1u) * THREADS * RESULTS>;
//#endif

// The row of a tile that starts at m0, of row `r` of an invocation's results.
fn row_of(r: u32, m0: u32, ty: u32) -> u32 {
  return m0 + ((r / 2u) * HIGH + ty) * 2u + r % 2u;
}

fn sum_of(v: vec2<f16>) -> T {
  let wide = vec2<T>(v);
  return wide.x + wide.y;
}

@compute @workgroup_size(THREADS * SLICES)
//#include numbered_workgroup name=main place=local number=group count=params.groups
//#include matmul_tile_place

  var k0 = first * TILE_K;
  var next_a: array<vec4<f16>, 2u * MOVES_A>;
  var next_b: array<vec4<f16>, 2u * MOVES_B>;
//#include half_moves
  var sums: array<vec4<T>, RESULTS>;
  for (var step = 0u; step < params.steps; step++) {
    //#unroll
    for (var i = 0u; i < MOVES_A; i++) {
      stage_a(slice, from_a(t + i * THREADS), next_a[2u * i], next_a[2u * i + 1u]);
    }
    //#unroll
    for (var i = 0u; i < MOVES_B; i++) {
      stage_b(slice, from_b(t + i * THREADS), next_b[2u * i], next_b[2u * i + 1u]);
    }
    workgroupBarrier();
    k0 = (first + min(step + 1u, params.steps - 1u) * SLICES) * TILE_K;
//#include half_moves
    var run = array<vec2<f16>, 4u * RESULTS>();
    //#unroll UNROLL
    for (var p = 0u; p < PAIRS; p++) {
      //#unroll
      for (var q = 0u; q < QUADS; q++) {
        let right0 = tile_b[slice * B_SIZE + p * B_PITCH + (q * WIDE + tx) * 2u];
        let right1 = tile_b[slice * B_SIZE + p * B_PITCH + (q * WIDE + tx) * 2u + 1u];
        //#unroll
        for (var g = 0u; g < ROWS / 2u; g++) {
          let left = tile_a[slice * A_SIZE + p * A_PITCH + g * HIGH + ty];
          let upper = (2u * g * QUADS + q) * 4u;
          let lower = ((2u * g + 1u) * QUADS + q) * 4u;
          run[upper] = fma(left.xy, right0.xy, run[upper]);
          run[upper + 1u] = fma(left.xy, right0.zw, run[upper + 1u]);
          run[upper + 2u] = fma(left.xy, right1.xy, run[upper + 2u]);
          run[upper + 3u] = fma(left.xy, right1.zw, run[upper + 3u]);
          run[lower] = fma(left.zw, right0.xy, run[lower]);
          run[lower + 1u] = fma(left.zw, right0.zw, run[lower + 1u]);
          run[lower + 2u] = fma(left.zw, right1.xy, run[lower + 2u]);
          run[lower + 3u] = fma(left.zw, right1.zw, run[lower + 3u]);
        }
      }
    }
    //#unroll
    for (var i = 0u; i < RESULTS; i++) {
      sums[i] += vec4<T>(
        sum_of(run[4u * i]), sum_of(run[4u * i + 1u]), sum_of(run[4u * i + 2u]), sum_of(run[4u * i + 3u]));
    }
    workgroupBarrier();
  }

//#include matmul_tile_results shares=shares
}
//#include matmul_tiled_fallback
//#include matmul_tile_put
