// y[n, m, p] = finish(sum over k of w[m, k] * x[n, channel(k), p * stride - pad + position(k) * dilation] + bias[m])
//
// Convolution as an implicit matrix product over NCHW. Rows m are the output channels of a group, columns the output
// pixels of all images, k the input channels of the group times the filter positions, which are innermost, as ONNX stores w.
// A workgroup makes a 32 x 32 tile, an invocation 4 x 4 of it in registers, or, with SIDE = 16 and TALL = 2, a 64 x 64
// tile, 8 x 4 an invocation. k is walked in steps of 16 through workgroup memory while the next step's operands are
// fetched into registers. SLICES sets of THREADS invocations take turns at the steps and are added up at the end (small
// tiles only); `splits` workgroups share a tile's k where tiles are few (conv_split_sum then adds and finishes).
//
// TRANSPOSED: y[n, m, o] = finish(sum over c, k, i with i * stride - pad + k * dilation = o of w[c, m, k] * x[n, c, i]).
// Outputs whose o + pad leave the same remainder by the stride meet the same positions: each such phase is a product of its
// own, over the positions first, first + period, ... of which KD x KH x KW is the number.
//
//#if HALF
// HALF: x and w are float16, multiplied as in matmul_half_tiled.wgsl, by pairs of k, PAIRS of them a step.
enable f16;
//#endif
//   weight4  is the only reader of w: a layout packed at load changes that function and `position_of` alone
//   finish   is the epilogue: fusion replaces it (activation, residual)
//
// FALLBACK: `kernels/ir/fallback.py`.
//#tensors x, w, bias, x_zero_point, w_zero_point -> y
//#type ACC = y
//#include kernel_sizes
const SLICES: u32 = 1u;
const SIDE: u32 = 8u;     // vec4s of a tile's rows, and of its columns
const TALL: u32 = 1u;     // vec4s of rows of an invocation

const HIGH: u32 = SIDE / TALL;
const THREADS: u32 = SIDE * HIGH;
const STAGED: u32 = SIDE * 16u;
const POSITIONS: u32 = KD * KH * KW;
//#if HALF
const PAIRS: u32 = 16u;

alias S = f16;
//#else
alias S = ACC;
//#endif
const MANY: u32 = 0x10000000u;

struct Params {
//#include convolution_fields
  rows: u32,            // output channels of a group
  columns: u32,         // images * output pixels
  channels: u32,        // input channels of a group
  groups: u32,
  row_tiles: u32,
  column_tiles: u32,
  steps: u32,           // of 16 * SLICES
  splits: u32,
  size: u32,            // elements of y
  zero_stride: u32,     // 1: w_zero_point has one element an output channel
//#if TRANSPOSED
  positions: vec4<u32>, // of the filter: depth, height, width; their product
  grid: vec4<u32>,      // outputs of a phase: depth, height, width; their product
  periods: vec4<u32>,   // from one position of a phase to the next
  gaps: vec4<u32>,      // and the inputs between them
//#endif
}

// Four columns: where their first position lies in x, and where they lie in y's first channel.
struct Quad {
  inside: vec4<bool>,
  x_at: vec4<u32>,
  d: vec4<i32>,
  h: vec4<i32>,
  w: vec4<i32>,
  y_at: vec4<u32>,
//#if TRANSPOSED
  first: vec3<u32>,     // position of their phase
//#endif
}

fn finish(value: ACC, channel: u32, index: u32) -> ACC { return value; }

// (input channel, position depth, position height, position width) of k.
fn position_of(k: u32) -> vec4<u32> {
  let position = k % POSITIONS;
  return vec4<u32>(k / POSITIONS, position / (KH * KW), (position / KW) % KH, position % KW);
}

//#if TRANSPOSED
// Remainders (o + pad) mod stride that the outputs of a phase have.
fn remainder_of(phase: u32) -> vec3<u32> {
  let s = vec3<u32>(params.strides.xyz);
  return vec3<u32>(phase / (s.z * s.y), (phase / s.z) % s.y, phase % s.z);
}

// The first position that meets outputs of a remainder; past the kernel where none does.
fn first_position(remainder: u32, axis: u32) -> u32 {
  for (var k = 0u; k < MANY; k++) {
    if (k >= params.periods[axis]) { break; }
    if ((k * params.dilations[axis]) % u32(params.strides[axis]) == remainder) { return k; }
  }
  return params.positions[axis];
}

// (o, i) along one axis: the u-th outputs of a phase, and the inputs that meet them by the first position.
fn phase_of(u: vec4<u32>, remainder: u32, first: u32, axis: u32) -> array<vec4<i32>, 2> {
  let s = params.strides[axis];
  let pad = params.pads[axis];
  let start = i32(positive_mod(i32(remainder) - pad, s));
  let o = vec4<i32>(u) * s + start;
  return array<vec4<i32>, 2>(o, (o + pad - i32(first * params.dilations[axis])) / s);
}

fn columns4(column: u32, group: u32, phase: u32) -> Quad {
  var quad: Quad;
  let remainder = remainder_of(phase);
  quad.first = vec3<u32>(first_position(remainder.x, 0u), first_position(remainder.y, 1u), first_position(remainder.z, 2u));
  let j = vec4<u32>(column, column + 1u, column + 2u, column + 3u);
  let image = j / params.grid.w;
  let p = j - image * params.grid.w;
  let uh = p / params.grid.z;
  let ud = uh / params.grid.y;
  let across = phase_of(p - uh * params.grid.z, remainder.z, quad.first.z, 2u);
  let down = phase_of(uh - ud * params.grid.y, remainder.y, quad.first.y, 1u);
  let deep = phase_of(ud, remainder.x, quad.first.x, 0u);
  let o = array<vec4<u32>, 3>(vec4<u32>(deep[0]), vec4<u32>(down[0]), vec4<u32>(across[0]));
  quad.inside = (j < vec4<u32>(params.columns)) & (o[0] < vec4<u32>(params.output.x));
  quad.inside &= (o[1] < vec4<u32>(params.output.y)) & (o[2] < vec4<u32>(params.output.z));
  quad.y_at = image * (params.groups * params.rows * params.output.w);
  quad.y_at += (o[0] * params.output.y + o[1]) * params.output.z + o[2];
  quad.d = deep[1];
  quad.h = down[1];
  quad.w = across[1];
  let plane = image * params.input.w + group * params.channels;
  quad.x_at = vec4<u32>((quad.d + vec4<i32>(plane * params.input.x)) * i32(params.input.y) + quad.h);
  quad.x_at = quad.x_at * params.input.z + vec4<u32>(quad.w);
  return quad;
}

fn weight4(quad: Quad, row: u32, k: u32, group: u32) -> vec4<S> {
  let position = position_of(k);
  let at_position = quad.first + position.yzw * params.periods.xyz;
  let r = vec4<u32>(row, row + 1u, row + 2u, row + 3u);
  let inside = (r < vec4<u32>(params.rows)) & vec4<bool>(position.x < params.channels && all(at_position < params.positions.xyz));
  let place = (at_position.x * params.positions.y + at_position.y) * params.positions.z + at_position.z;
  let matrix = (group * params.channels + position.x) * params.rows;
  let at = select(vec4<u32>(0u), (r + matrix) * params.positions.w + place, inside);
//#if HALF
  let v = vec4<S>(half_w(at.x), half_w(at.y), half_w(at.z), half_w(at.w));
  return select(vec4<S>(), v, inside);
//#else
  let v = vec4<ACC>(ACC(load_w(at.x)), ACC(load_w(at.y)), ACC(load_w(at.z)), ACC(load_w(at.w)));
  return select(vec4<ACC>(0), v - zeros4(row, group), inside);
//#endif
}
//#else
fn columns4(column: u32, group: u32, phase: u32) -> Quad {
  var quad: Quad;
  let j = vec4<u32>(column, column + 1u, column + 2u, column + 3u);
  quad.inside = j < vec4<u32>(params.columns);
  let image = j / params.output.w;
  let p = j - image * params.output.w;
  quad.y_at = image * (params.groups * params.rows * params.output.w) + p;
  let oh = p / params.output.z;
//#include windows_of_quad
  let plane = image * params.input.w + group * params.channels;
  quad.x_at = vec4<u32>((quad.d + vec4<i32>(plane * params.input.x)) * i32(params.input.y) + quad.h);
  quad.x_at = quad.x_at * params.input.z + vec4<u32>(quad.w);
  return quad;
}

fn weight4(quad: Quad, row: u32, k: u32, group: u32) -> vec4<S> {
  let depth = params.channels * POSITIONS;
  let r = vec4<u32>(row, row + 1u, row + 2u, row + 3u);
  let inside = (r < vec4<u32>(params.rows)) & vec4<bool>(k < depth);
  let at = select(vec4<u32>(0u), (r + group * params.rows) * depth + k, inside);
//#if HALF
  let v = vec4<S>(half_w(at.x), half_w(at.y), half_w(at.z), half_w(at.w));
  return select(vec4<S>(), v, inside);
//#else
  let v = vec4<ACC>(ACC(load_w(at.x)), ACC(load_w(at.y)), ACC(load_w(at.z)), ACC(load_w(at.w)));
  return select(vec4<ACC>(0), v - zeros4(row, group), inside);
//#endif
}
//#endif

fn input4(quad: Quad, k: u32, zero: ACC) -> vec4<S> {
//#if POINTWISE
  if (k >= params.channels || !quad.inside.x) { return vec4<S>(0); }
//#if HALF
  return half4_x((quad.x_at.x + k * params.output.w) / 4u);
//#else
  return vec4<ACC>(load4_x((quad.x_at.x + k * params.output.w) / 4u)) - zero;
//#endif
//#else
  let position = position_of(k);
//#if TRANSPOSED
  let step = vec3<u32>(0u) - position.yzw * params.gaps.xyz;
//#else
  let step = position.yzw * params.dilations.xyz;
//#endif
  let h = quad.h + i32(step.y);
  let w = quad.w + i32(step.z);
  var inside = quad.inside & vec4<bool>(position.x < params.channels);
  inside &= (vec4<u32>(h) < vec4<u32>(params.input.y)) & (vec4<u32>(w) < vec4<u32>(params.input.z));
//#if TRANSPOSED
  inside &= vec4<bool>(all(quad.first + position.yzw * params.periods.xyz < params.positions.xyz));
//#endif
//#if VOLUME
  inside &= vec4<u32>(quad.d + i32(step.x)) < vec4<u32>(params.input.x);
//#endif
  let offset = ((position.x * params.input.x + step.x) * params.input.y + step.y) * params.input.z + step.z;
  let at = select(vec4<u32>(0u), quad.x_at + offset, inside);
//#if HALF
  let v = vec4<S>(half_x(at.x), half_x(at.y), half_x(at.z), half_x(at.w));
  return select(vec4<S>(), v, inside);
//#else
  let v = vec4<ACC>(ACC(load_x(at.x)), ACC(load_x(at.y)), ACC(load_x(at.z)), ACC(load_x(at.w)));
  return select(vec4<ACC>(0), v - zero, inside);
//#endif
//#endif
}

fn emit(sum: vec4<ACC>, row: u32, group: u32, quad: Quad, start: u32) {
  if (row >= params.rows) { return; }
  let channel = group * params.rows + row;
  let at = quad.y_at + (start + channel * params.output.w);
  var v = sum;
//#if BIAS
  v += ACC(load_bias(channel));
//#endif
  let y0 = finish(v.x, channel, at.x);
  let y1 = finish(v.y, channel, at.y);
  let y2 = finish(v.z, channel, at.z);
  let y3 = finish(v.w, channel, at.w);
//#if QUAD
  if (quad.inside.x) { store4_y(at.x / 4u, y0, y1, y2, y3); }
//#else
  if (quad.inside.x) { store_y(at.x, y0); }
  if (quad.inside.y) { store_y(at.y, y1); }
  if (quad.inside.z) { store_y(at.z, y2); }
  if (quad.inside.w) { store_y(at.w, y3); }
//#endif
}

fn zeros4(row: u32, group: u32) -> vec4<ACC> {
//#if ZERO_W
  let at = vec4<u32>(row, row + 1u, row + 2u, row + 3u) + group * params.rows;
  let i = min(at, vec4<u32>(params.groups * params.rows - 1u)) * params.zero_stride;
  return vec4<ACC>(ACC(load_w_zero_point(i.x)), ACC(load_w_zero_point(i.y)), ACC(load_w_zero_point(i.z)),
    ACC(load_w_zero_point(i.w)));
//#else
  return vec4<ACC>(0);
//#endif
}

fn zero_of_x() -> ACC {
//#if ZERO_X
  return ACC(load_x_zero_point(0u));
//#else
  return ACC(0);
//#endif
}

// What a workgroup makes.
struct Job {
  row_tile: u32,
  column_tile: u32,
  group: u32,
  split: u32,
  phase: u32,
  is_real: bool,
}

fn job_of(job: u32) -> Job {
  let rest = job / (params.row_tiles * params.column_tiles);
  let phase = rest / (params.groups * params.splits);
  let column_tile = (job / params.row_tiles) % params.column_tiles;
  let split = (rest / params.groups) % params.splits;
//#if TRANSPOSED
  let phases = u32(params.strides.x * params.strides.y * params.strides.z);
//#else
  let phases = 1u;
//#endif
  return Job(job % params.row_tiles, column_tile, rest % params.groups, split, phase, phase < phases);
}

//#include optimized
// Per slice, 16 rows of SIDE vec4: w's tile, rotated by k to keep banks apart, then x's.
//#if HALF
//#include conv_half_tile
//#else
var<workgroup> tile: array<vec4<ACC>, SLICES * 2u * STAGED>;
//#endif

@compute @workgroup_size(THREADS * SLICES)
//#include workgroup name=main place=lane
  let job = job_of(workgroup_index(wid, nwg));
  if (!job.is_real) { return; }

  let slice = lane / THREADS;
  let base = slice * 2u * STAGED;
  let column = lane % SIDE;
  let row = (lane / SIDE) % HIGH;
  let quad = columns4((job.column_tile * SIDE + column) * 4u, job.group, job.phase);
  let w_k = lane % 16u;
  let w_row = (lane / 16u) % (SIDE / 2u);
  let first = job.row_tile * SIDE * 4u;
  let x_zero = zero_of_x();

//#if HALF
//#include conv_half_steps
//#else
  var k = (job.split * params.steps * SLICES + slice) * 16u;
  var w_next: array<vec4<ACC>, 2>;
  var x_next: array<vec4<ACC>, 2>;
  var sums: array<vec4<ACC>, 4u * TALL>;
  for (var step = 0u; step < MANY; step++) {
    // Operands of this step are on their way while the last one's are multiplied.
    for (var half = 0u; half < 2u; half++) {
      w_next[half] = weight4(quad, first + (w_row + half * (SIDE / 2u)) * 4u, k + w_k, job.group);
      x_next[half] = input4(quad, k + row + half * 8u, x_zero);
    }
    if (step > 0u) {
      for (var i = 0u; i < 16u; i++) {
        let b = tile[base + STAGED + i * SIDE + column];
        //#unroll
        for (var t = 0u; t < TALL; t++) {
          let a = tile[base + i * SIDE + (row + t * HIGH + i) % SIDE];
          sums[4u * t + 0u] += a.x * b;
          sums[4u * t + 1u] += a.y * b;
          sums[4u * t + 2u] += a.z * b;
          sums[4u * t + 3u] += a.w * b;
        }
      }
    }
    if (step >= params.steps) { break; }
    workgroupBarrier();
    for (var half = 0u; half < 2u; half++) {
      tile[base + w_k * SIDE + (w_row + half * (SIDE / 2u) + w_k) % SIDE] = w_next[half];
      tile[base + STAGED + (row + half * 8u) * SIDE + column] = x_next[half];
    }
    workgroupBarrier();
    k += 16u * SLICES;
  }

//#endif
//#if SLICED
//#if HALF
//#include conv_half_shares
//#else
  // The last step's operands have been read by all of the slice.
  workgroupBarrier();
  let mine = base + (lane % THREADS) * 4u;
  //#unroll
  for (var r = 0u; r < 4u; r++) {
    tile[mine + r] = sums[r];
  }
  workgroupBarrier();
  if (slice != 0u) { return; }
  for (var s = 1u; s < SLICES; s++) {
    //#unroll
    for (var r = 0u; r < 4u; r++) {
      sums[r] += tile[s * 2u * STAGED + mine + r];
    }
  }
//#endif
//#endif
  let start = job.split * params.size;
//#if ROLLED
  // `finish` is there once, in a loop whose count compilers do not know; results move up in their registers.
  let rows = select(4u * TALL, 0u, params.rows == 0u);
  for (var r = 0u; r < rows; r++) {
    emit(sums[0], first + (row + r / 4u * HIGH) * 4u + r % 4u, job.group, quad, start);
    //#unroll
    for (var i = 0u; i < 4u * TALL - 1u; i++) {
      sums[i] = sums[i + 1u];
    }
  }
//#else
  //#unroll
  for (var r = 0u; r < 4u * TALL; r++) {
    emit(sums[r], first + (row + r / 4u * HIGH) * 4u + r % 4u, job.group, quad, start);
  }
//#endif
}
//#include fallback
//#include quads_each
//#include conv_implicit_gemm_fallback
//#include fallback_end
