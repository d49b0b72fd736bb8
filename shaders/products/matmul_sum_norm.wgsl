// p = finish(sum over s of parts[s]), y = (p - mean) * inv * scale + bias along rows; inv = 1 / sqrt(var + epsilon): the
// second pass of a matrix product whose k was split, and the normalisation after it.
//
// A workgroup takes a row and holds it in registers, QUADS vec4s an invocation. RMS: the mean is not taken off. KEEP: p
// is wanted too. Partial results are combined by Chan, Golub and LeVeque's formula (1979).
//#if PLACES
// PLACES: row r of y is written as row `places[r]`.
//#endif
//#if FALLBACK
// FALLBACK: `kernels/ir/fallback.py`.
//#endif
//#tensors parts, scale, bias, places -> y, p
//#type T = parts
const WG: u32 = 64u;
const QUADS: u32 = 3u;

struct Params {
  size: u32,     // elements of p
  n: u32,        // of a row
  splits: u32,
  rows: u32,
  epsilon: f32,
}

//#include finish_quad

fn put(row: u32, col: u32, normal: vec4<f32>) {
  var v = normal * load4_scale(col >> 2u);
//#if BIAS
  v += load4_bias(col >> 2u);
//#endif
//#if PLACES
  let to = load_places(row) * params.n;
  store4_y((to + col) >> 2u, v[0], v[1], v[2], v[3]);
//#else
  store4_y((row * params.n + col) >> 2u, v[0], v[1], v[2], v[3]);
//#endif
}

//#include optimized
//#include moments_combined shares=shares reduced=reduced_for_all

@compute @workgroup_size(WG)
//#include numbered_workgroup name=main place=lane number=row count=params.rows
  // Shares of all quads are on their way at once, two of each; after the end of the row lie those of its last quad.
  let first = row * params.n;
  let last = params.splits - 1u;
  var held: array<vec4<f32>, QUADS>;
  for (var s = 0u; s < params.splits; s += 2u) {
    //#unroll
    for (var i = 0u; i < QUADS; i++) {
      let at = first + min((lane + i * WG) * 4u, params.n - 4u);
      let other = load4_parts((min(s + 1u, last) * params.size + at) >> 2u);
      held[i] += load4_parts((s * params.size + at) >> 2u);
      held[i] += select(vec4<f32>(), other, s < last);
    }
  }
  //#unroll
  for (var i = 0u; i < QUADS; i++) {
    held[i] = finish(held[i], row, min((lane + i * WG) * 4u, params.n - 4u));
  }
  var count = 0.0;
  var sum = 0.0;
  //#unroll
  for (var i = 0u; i < QUADS; i++) {
    let col = (lane + i * WG) * 4u;
    if (col < params.n) {
//#if KEEP
      store4_p((first + col) >> 2u, held[i][0], held[i][1], held[i][2], held[i][3]);
//#endif
      count += 4.0;
      sum += (held[i][0] + held[i][1]) + (held[i][2] + held[i][3]);
    }
  }
//#if RMS
  let own = 0.0;
//#else
  let own = sum / max(count, 1.0);
//#endif
  var squares = 0.0;
  //#unroll
  for (var i = 0u; i < QUADS; i++) {
    if ((lane + i * WG) * 4u < params.n) {
      let d = held[i] - vec4<f32>(own);
      squares += dot(d, d);
    }
  }
  let total = combined(vec3<f32>(count, own, squares), lane);
  let inv = 1.0 / sqrt(total.z / f32(params.n) + params.epsilon);
  //#unroll
  for (var i = 0u; i < QUADS; i++) {
    let col = (lane + i * WG) * 4u;
    if (col < params.n) { put(row, col, (held[i] - vec4<f32>(total.y)) * inv); }
  }
}
//#include fallback
fn p_at(row: u32, col: u32) -> vec4<f32> {
  var sum = vec4<f32>();
  for (var s = 0u; s < params.splits; s++) {
    sum += load4_parts((s * params.size + row * params.n + col) >> 2u);
  }
  return finish(sum, row, col);
}

// Every invocation adds up the whole row for its mean, and all of them have when the first results take the place of operands.
@compute @workgroup_size(64)
//#include numbered_workgroup name=fallback place=lane number=row count=params.rows
  var mean = 0.0;
//#if !RMS
  for (var col = 0u; col < params.n; col += 4u) {
    let v = p_at(row, col);
    mean += (v[0] + v[1]) + (v[2] + v[3]);
  }
  mean /= f32(params.n);
//#endif
  var squares = 0.0;
  for (var col = 0u; col < params.n; col += 4u) {
    let d = p_at(row, col) - vec4<f32>(mean);
    squares += dot(d, d);
  }
  storageBarrier();
  let inv = 1.0 / sqrt(squares / f32(params.n) + params.epsilon);
  for (var col = lane * 4u; col < params.n; col += 256u) {
    let v = p_at(row, col);
//#if KEEP
    store4_p((row * params.n + col) >> 2u, v[0], v[1], v[2], v[3]);
//#endif
    put(row, col, (v - vec4<f32>(mean)) * inv);
  }
}
//#include fallback_end
