// The tiled product: `quad_a` and `quad_b` read four neighbours of the operands, `put` takes four results.
var<workgroup> tile_a: array<vec4<T>, max(A_SIZE * SLICES, (SLICES - 1u) * THREADS * RESULTS)>;
var<workgroup> tile_b: array<vec4<T>, B_SIZE * SLICES>;

// Where the vec4 number `e` of a staged tile comes from: (row of a or column of b, k).
fn from_a(e: u32) -> vec2<u32> {
//#if TRANS_A
  return vec2<u32>((e % (TILE_M / 4u)) * 4u, e / (TILE_M / 4u));
//#else
  return vec2<u32>(e / (TILE_K / 4u), (e % (TILE_K / 4u)) * 4u);
//#endif
}

fn from_b(e: u32) -> vec2<u32> {
//#if TRANS_B
  return vec2<u32>(e / (TILE_K / 4u), (e % (TILE_K / 4u)) * 4u);
//#else
  return vec2<u32>((e % (TILE_N / 4u)) * 4u, e / (TILE_N / 4u));
//#endif
}

fn stage_a(slice: u32, at: vec2<u32>, v: vec4<T>) {
//#if TRANS_A
//#if K_MAJOR
  tile_a[slice * A_SIZE + at.y * A_PITCH + at.x / 4u] = v;
//#else
  //#unroll
  for (var c = 0u; c < 4u; c++) {
    tile_a[slice * A_SIZE + (at.x + c) * A_PITCH + at.y / 4u][at.y % 4u] = v[c];
  }
//#endif
//#elif K_MAJOR
  //#unroll
  for (var c = 0u; c < 4u; c++) {
    tile_a[slice * A_SIZE + (at.y + c) * A_PITCH + at.x / 4u][at.x % 4u] = v[c];
  }
//#else
  tile_a[slice * A_SIZE + at.x * A_PITCH + at.y / 4u] = v;
//#endif
}

fn stage_b(slice: u32, at: vec2<u32>, v: vec4<T>) {
//#if TRANS_B
  //#unroll
  for (var c = 0u; c < 4u; c++) {
    tile_b[slice * B_SIZE + (at.y + c) * B_PITCH + at.x / 4u][at.x % 4u] = v[c];
  }
//#else
  tile_b[slice * B_SIZE + at.y * B_PITCH + at.x / 4u] = v;
//#endif
}

// The row of a tile that starts at m0, of row `r` of an invocation's results.
fn row_of(r: u32, m0: u32, ty: u32) -> u32 {
//#if K_MAJOR
  return m0 + ((r / 4u) * HIGH + ty) * 4u + r % 4u;
//#else
  return m0 + r * HIGH + ty;
//#endif
}

@compute @workgroup_size(THREADS * SLICES)
//#include numbered_workgroup name=main place=local number=group count=params.groups
//#include matmul_tile_place

  var k0 = first * TILE_K;
  var next_a: array<vec4<T>, MOVES_A>;
  var next_b: array<vec4<T>, MOVES_B>;
//#include matmul_moves

  var sums: array<vec4<T>, RESULTS>;
  for (var step = 0u; step < params.steps; step++) {
    //#unroll
    for (var i = 0u; i < MOVES_A; i++) {
      stage_a(slice, from_a(t + i * THREADS), next_a[i]);
    }
    //#unroll
    for (var i = 0u; i < MOVES_B; i++) {
      stage_b(slice, from_b(t + i * THREADS), next_b[i]);
    }
    workgroupBarrier();
    k0 = (first + min(step + 1u, params.steps - 1u) * SLICES) * TILE_K;
//#include matmul_moves
//#if K_MAJOR
    //#unroll UNROLL
    for (var k = 0u; k < TILE_K; k++) {
      //#unroll
      for (var q = 0u; q < QUADS; q++) {
        let right = tile_b[slice * B_SIZE + k * B_PITCH + q * WIDE + tx];
        //#unroll
        for (var g = 0u; g < ROWS / 4u; g++) {
          let left = tile_a[slice * A_SIZE + k * A_PITCH + g * HIGH + ty];
          sums[(g * 4u + 0u) * QUADS + q] += left[0] * right;
          sums[(g * 4u + 1u) * QUADS + q] += left[1] * right;
          sums[(g * 4u + 2u) * QUADS + q] += left[2] * right;
          sums[(g * 4u + 3u) * QUADS + q] += left[3] * right;
        }
      }
    }
//#else
    //#unroll UNROLL
    for (var quad = 0u; quad < TILE_K / 4u; quad++) {
      let right = slice * B_SIZE + quad * 4u * B_PITCH + tx;
      let right0 = tile_b[right];
      let right1 = tile_b[right + B_PITCH];
      let right2 = tile_b[right + 2u * B_PITCH];
      let right3 = tile_b[right + 3u * B_PITCH];
      //#unroll
      for (var r = 0u; r < ROWS; r++) {
        let left = tile_a[slice * A_SIZE + (r * HIGH + ty) * A_PITCH + quad];
        sums[r] += left[0] * right0 + left[1] * right1 + left[2] * right2 + left[3] * right3;
      }
    }
//#endif
    workgroupBarrier();
  }

//#include matmul_tile_results shares=tile_a
}
