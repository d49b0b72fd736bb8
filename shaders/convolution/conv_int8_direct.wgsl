// y[n, m, p] = finish(sum over c, k of (w[m, k, c] - w_zero) * (x[n, c, p * stride - pad + k * dilation] - x_zero))
//
// Int8, four neighbouring pixels of ROWS output channels an invocation, no workgroup memory: for adapters that run on a
// processor. A word of w is four channels of a filter position: rows of w have whole words, whatever follows the last channel.
// Few loops, since what they hold is saved and brought back. Exact: products of differences of int8 numbers are below
// 2^16, so f32 holds the sums of 256 of them.
//   EVEN    planes of x are whole words, so that a pixel has the same place in its word in all channels
//   WHOLE   channels are whole words, or less than one
//   C2, C3, C4  there is a second, third, fourth channel
//   ONCE    f32 holds the sums of all positions. ONE: a word of channels. CHUNKS: f32 does not hold the sums of a position
//   finish  is the epilogue: fusion replaces it; it is there once, since every call is inlined
//#tensors x, w, x_zero_point, w_zero_point -> y
const WG: u32 = 64u;
const ROWS: u32 = 8u;
const CHANNELS: u32 = 1u; // in a word
const EXACT: u32 = 64u;

alias ACC = i32;

struct Params {
  input: vec4<u32>,     // depth, height, width; channels of all groups
  output: vec4<u32>,    // depth, height, width; their product
  positions: vec4<u32>, // depth, height, width; their product
  strides: vec4<i32>,
  dilations: vec4<u32>,
  pads: vec4<i32>,
  rows: u32,            // output channels of a group
  channels: u32,        // input channels of a group
  groups: u32,
  quads: u32,           // of four pixels, in a channel
  blocks: u32,          // of ROWS output channels, in a group
  jobs: u32,            // images * groups * blocks * quads
  zero_stride: u32,     // 1: w_zero_point has one element an output channel
  words: u32,           // of channels
  chunks: u32,          // of EXACT words, in a position
  turns: u32,           // chunks of all positions
}

fn finish(value: ACC, channel: u32, index: u32) -> ACC { return value; }

fn emit(sum: vec4<ACC>, image: u32, m: u32, first: u32) {
  let at = (image * params.groups * params.rows + m) * params.output.w + first;
//#include store_four v=sum m=m first=first width=params.output.w
}

// Zero point of an output channel, for bytes as `levels_w` has them.
fn w_zero(m: u32) -> f32 {
//#if ZERO_W
  let zero = f32(load_w_zero_point(m * params.zero_stride));
//#else
  let zero = 0.0;
//#endif
//#if SIGNED_W
  return zero + 128.0;
//#else
  return zero;
//#endif
}

// Bytes of a word of w as unsigned ones: of signed ones 128 more.
fn levels_w(word: u32) -> u32 {
//#if SIGNED_W
  return word ^ 0x80808080u;
//#else
  return word;
//#endif
}

fn x_zero() -> f32 {
//#if ZERO_X
  return f32(load_x_zero_point(0u));
//#else
  return 0.0;
//#endif
}

// What brings bytes `at` to the top of their words. A product, since shifts by differing numbers are made one by one.
fn lift(at: vec4<u32>) -> vec4<u32> {
  let third = select(vec4<u32>(1u << 8u), vec4<u32>(1u), (at & vec4<u32>(1u)) != vec4<u32>());
  return select(third << vec4<u32>(16u), third, (at & vec4<u32>(2u)) != vec4<u32>());
}

// x at four places, `lifts` what `lift` says of them.
fn pixels(at: vec4<u32>, lifts: vec4<u32>) -> vec4<f32> {
  let i = at >> vec4<u32>(2u);
  let tops = vec4<u32>(load_x(i.x), load_x(i.y), load_x(i.z), load_x(i.w)) * lifts;
//#if SIGNED_X
  return vec4<f32>(bitcast<vec4<i32>>(tops) >> vec4<u32>(24u));
//#else
  return vec4<f32>(bitcast<vec4<i32>>(tops >> vec4<u32>(24u)));
//#endif
}

@compute @workgroup_size(WG)
//#include invocation job=job size=WG jobs=jobs
  let run = job / params.quads;
  let first = (job - run * params.quads) * 4u;
  let image = run / (params.groups * params.blocks);
  let group = (run / params.blocks) % params.groups;
  let row = (run % params.blocks) * ROWS;
  let plane = params.input.x * params.input.y * params.input.z;
  let x_at = (image * params.input.w + group * params.channels) * plane;
  let zero = x_zero();

  let p = vec4<u32>(first, first + 1u, first + 2u, first + 3u);
  let oh = p / params.output.z;
  let first_w = vec4<i32>(p - oh * params.output.z) * params.strides.z - params.pads.z;
//#if VOLUME
  let od = oh / params.output.y;
  let first_h = vec4<i32>(oh - od * params.output.y) * params.strides.y - params.pads.y;
  let first_d = vec4<i32>(od) * params.strides.x - params.pads.x;
//#else
  let first_h = vec4<i32>(oh) * params.strides.y - params.pads.y;
//#endif

  var w_at: array<u32, ROWS>;
  var from_w: array<vec4<f32>, ROWS>;
  //#unroll
  for (var r = 0u; r < ROWS; r++) {
    let m = group * params.rows + min(row + r, params.rows - 1u);
    w_at[r] = m * params.positions.w * params.words;
    from_w[r] = powers_8() + w_zero(m);
  }
  var parts: array<vec4<f32>, ROWS>;
//#if !ONCE
  var sums: array<vec4<i32>, ROWS>;
//#endif
  // Of the position: stepped, since divisions are dear.
  var position = 0u;
  var position_w = 0u;
  var position_h = 0u;
//#if VOLUME
  var position_d = 0u;
//#endif
//#if CHUNKS
  var chunk = 0u;
//#endif
  for (var turn = 0u; turn < params.turns; turn++) {
//#if CHUNKS
    let word0 = chunk * EXACT;
    let end = min(word0 + EXACT, params.words);
//#else
    let word0 = 0u;
    let end = params.words;
//#endif
    let h = first_h + i32(position_h * params.dilations.y);
    let w = first_w + i32(position_w * params.dilations.z);
    var inside = (vec4<u32>(h) < vec4<u32>(params.input.y)) & (vec4<u32>(w) < vec4<u32>(params.input.z));
    var line = h;
//#if VOLUME
    let d = first_d + i32(position_d * params.dilations.x);
    inside &= vec4<u32>(d) < vec4<u32>(params.input.x);
    line += d * i32(params.input.y);
//#endif
    let begin = vec4<u32>(line) * params.input.z + vec4<u32>(w) + x_at + word0 * 4u * plane;
    var at = select(vec4<u32>(0u), begin, inside);
    let step = select(vec4<u32>(0u), vec4<u32>(plane), inside);
//#if EVEN
    let lifts = lift(at);
//#endif
    let w_position = position * params.words;
//#if ONE
    {
      let word = 0u;
//#else
    for (var word = word0; word < end; word++) {
//#endif
      var seen: array<vec4<f32>, CHANNELS>;
      //#unroll
      for (var c = 0u; c < CHANNELS; c++) {
//#if EVEN
        let v = pixels(at, lifts) - zero;
//#else
        let v = pixels(at, lift(at)) - zero;
//#endif
//#if WHOLE
        seen[c] = select(vec4<f32>(), v, inside);
        at += step;
//#else
        seen[c] = select(vec4<f32>(), v, inside & vec4<bool>(word * 4u + c < params.channels));
        at += select(vec4<u32>(0u), step, vec4<bool>(word * 4u + c + 1u < params.channels));
//#endif
      }
      //#unroll
      for (var r = 0u; r < ROWS; r++) {
        let weight = weights_8(levels_w(load_w(w_at[r] + w_position + word)), from_w[r]);
        parts[r] += weight[0] * seen[0]
//#if C2
          + weight[1] * seen[1]
//#endif
//#if C3
          + weight[2] * seen[2]
//#endif
//#if C4
          + weight[3] * seen[3]
//#endif
          ;
      }
    }
//#if !ONCE
    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      sums[r] += vec4<i32>(parts[r]);
      parts[r] = vec4<f32>();
    }
//#endif
//#if CHUNKS
    chunk = select(chunk + 1u, 0u, chunk + 1u == params.chunks);
    let done = u32(chunk == 0u);
//#else
    let done = 1u;
//#endif
    position += done;
    position_w += done;
    position_h += u32(position_w == params.positions.z);
    position_w = select(position_w, 0u, position_w == params.positions.z);
//#if VOLUME
    position_d += u32(position_h == params.positions.y);
    position_h = select(position_h, 0u, position_h == params.positions.y);
//#endif
  }
  for (var r = 0u; r < ROWS; r++) {
//#if ONCE
    let sum = vec4<i32>(parts[r]);
//#else
    let sum = sums[r];
//#endif
    if (row + r < params.rows) { emit(sum, image, group * params.rows + row + r, first); }
  }
}
