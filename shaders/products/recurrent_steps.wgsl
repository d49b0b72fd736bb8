// Steps of a recurrent layer: one unit's gates are its share of xw (input times W, biases added) plus h(t-1) times R.
//
//   LSTM  c = f(zf) * c + f(zi) * g(zc), h = f(zo) * act_h(c); zi, zf see P * c before, zo P * c after
//   GRU   h = (1 - f(zz)) * g(zh) + f(zz) * h; the reset gate multiplies h R + its bias or, RESET_FIRST, h before R
//   RNN   h = f(z)
//
// A workgroup makes UNITS units of one batch entry and direction, or, LOOP, all of them in turn, and all `steps`
// steps; SHARES neighbours split a unit's sum over h. What a step reads no workgroup writes: states are in `hs`, each
// time's at a place of its own. These are the times of y, DIRECT: then the state before the first step is h0, with C0
// c0, or zero. Else hs is [step + 1, direction, batch, unit], slot 0 being the initial state, as `cell` begins with it.
// Sequences end at `lens`, which DIRECT has none of. A GRU that resets first takes two phases: gates z and r, then, with
// r * h in `reset`, the candidate. CLIP bounds the gates' inputs.
//
// BYTES: R is int8 [direction, gate, QUADS * 16], and h(t-1) is rounded to uint8 over its range in all batch entries, by each
// workgroup for itself, which then makes `turns` blocks of units. Sums are exact: with bytes less 128, and o the zero
// point of h less 128, a gate's is sum(h r) - zero sum(h) - o sum(r - zero), times both scales. `columns` holds, for
// each direction, the gates' scales, zero points and sum(r - zero).
//#tensors xw, r, columns, h0, c0, peephole, bias, lens -> hs, cell, update, reset
const UNITS: u32 = 32u;
const SHARES: u32 = 8u;
const GATES: u32 = 1u;
const QUADS: u32 = 1u;

struct Params {
  times: u32,
  batch: u32,
  hidden: u32,
  first: u32,
  steps: u32,
  blocks: u32,          // of UNITS; BYTES without LOOP: of UNITS * turns
  turns: u32,
  groups: u32,
  phase: u32,
  xw_direction: u32,
  xw_time: u32,
  xw_batch: u32,
  all_gates: u32,
  reversed: u32,
  hs_time: u32,
  hs_direction: u32,
  hs_batch: u32,
  cell_direction: u32,  // of the cell, and of what phases leave
  cell_batch: u32,
  given_direction: u32, // of h0 and c0
  given_batch: u32,
  clip: f32,
}

//#if BYTES
var<workgroup> parts: array<i32, UNITS * SHARES * GATES>;
var<workgroup> lows: array<f32, UNITS * SHARES>;
var<workgroup> highs: array<f32, UNITS * SHARES>;
var<workgroup> state: array<vec4<u32>, QUADS>;
var<private> rounding: vec2<f32>; // scale and zero point of the state
//#else
var<workgroup> parts: array<f32, UNITS * SHARES * GATES>;
//#endif

fn act_f(x: f32, d: u32) -> f32 { return sigmoid(x); }
fn act_g(x: f32, d: u32) -> f32 { return hyperbolic_tangent(x); }
fn act_h(x: f32, d: u32) -> f32 { return hyperbolic_tangent(x); }

fn limited(x: f32) -> f32 {
//#if CLIP
  return clamp(x, -params.clip, params.clip);
//#else
  return x;
//#endif
}

fn is_backward(d: u32) -> bool {
  return ((params.reversed >> d) & 1u) == 1u;
}

// Where the state that a step is fed lies in hs, and where its own goes.
fn state_before(d: u32, s: u32, b: u32) -> u32 {
//#if DIRECT
  let time = select(max(s, 1u) - 1u, params.times - max(s, 1u), is_backward(d));
//#else
  let time = s;
//#endif
  return time * params.hs_time + d * params.hs_direction + b * params.hs_batch;
}

fn state_after(d: u32, s: u32, b: u32) -> u32 {
//#if DIRECT
  let time = select(s, params.times - 1u - s, is_backward(d));
//#else
  let time = s + 1u;
//#endif
  return time * params.hs_time + d * params.hs_direction + b * params.hs_batch;
}

// Unit k of the state before step `s`, which is at `at` of hs.
fn h_before(d: u32, s: u32, b: u32, at: u32, k: u32) -> f32 {
//#if DIRECT
  if (s == 0u) {
//#if H0
    return load_h0(d * params.given_direction + b * params.given_batch + k);
//#else
    return 0.0;
//#endif
  }
//#endif
  return load_hs(at + k);
}
//#if VECTORS

// Units k .. k + 3 of it.
fn h4_before(d: u32, s: u32, b: u32, at: u32, k: u32) -> vec4<f32> {
//#if DIRECT
  if (s == 0u) {
//#if H0
    return load4_h0((d * params.given_direction + b * params.given_batch + k) >> 2u);
//#else
    return vec4<f32>();
//#endif
  }
//#endif
  return load4_hs((at + k) >> 2u);
}
//#endif
//#if LSTM

// Unit j of the cell before step `s`, which is at `own`.
fn c_before(d: u32, s: u32, b: u32, own: u32, j: u32) -> f32 {
//#if DIRECT
  if (s == 0u) {
//#if C0
    return load_c0(d * params.given_direction + b * params.given_batch + j);
//#else
    return 0.0;
//#endif
  }
//#endif
  return load_cell(own);
}
//#endif

fn length_of(b: u32) -> u32 {
//#if LENS
  return u32(clamp(load_lens(b), 0i, i32(params.times)));
//#else
  return params.times;
//#endif
}

fn own_at(d: u32, b: u32) -> u32 {
  return d * params.cell_direction + b * params.cell_batch;
}

//#if BYTES
//#include dot_int8

// The state before step `s` to `state`, bytes less 128, and its scale and zero point.
fn round_state(d: u32, b: u32, s: u32, lane: u32) {
  var low = 0.0;
  var high = 0.0;
  for (var i = lane; i < params.batch * params.hidden; i += UNITS * SHARES) {
    let entry = i / params.hidden;
//#if LENS
    if (s > length_of(entry)) { continue; }
//#endif
    let v = h_before(d, s, entry, state_before(d, s, entry), i - entry * params.hidden);
    low = min(low, v);
    high = max(high, v);
  }
  lows[lane] = low;
  highs[lane] = high;
  workgroupBarrier();
  for (var width = UNITS * SHARES / 2u; width > 0u; width >>= 1u) {
    if (lane < width) {
      lows[lane] = min(lows[lane], lows[lane + width]);
      highs[lane] = max(highs[lane], highs[lane + width]);
    }
    workgroupBarrier();
  }
  var step = divide_rounded(highs[0] - lows[0], 255.0);
  if (highs[0] == lows[0]) { step = 1.0; }
  rounding = vec2<f32>(step, quantize(divide_rounded(-lows[0], step), 0.0, 0.0, 255.0));
  let at = state_before(d, s, b);
  for (var quad = lane; quad < QUADS; quad += UNITS * SHARES) {
    var bytes = vec4<u32>();
    for (var i = 0u; i < min(16u, params.hidden - quad * 16u); i++) {
      let q = near_quotient(h_before(d, s, b, at, quad * 16u + i), step);
      bytes[i / 4u] |= (u32(quantize(q, rounding.y, 0.0, 255.0)) ^ 128u) << (8u * (i % 4u));
    }
    state[quad] = bytes;
  }
  workgroupBarrier();
}
//#endif

// Sums of gates `gate` .. `gate + count - 1` of unit `j`, left in `parts` of share 0.
fn multiply(d: u32, b: u32, s: u32, gate: u32, count: u32, j: u32, unit: u32, share: u32) {
//#if BYTES
  var sums: array<i32, GATES>;
  var total = 0i;
  let column = min(j, params.hidden - 1u);
  let r_at = (d * GATES * params.hidden + column) * QUADS;
  for (var k = share; k < QUADS; k += SHARES) {
    let h = state[k];
    //#unroll
    for (var g = 0u; g < GATES; g++) {
//#if UNSIGNED
      let w = load4_r(r_at + g * params.hidden * QUADS + k) ^ vec4<u32>(0x80808080u);
//#else
      let w = load4_r(r_at + g * params.hidden * QUADS + k);
//#endif
      sums[g] += dot4(h[0], w[0]) + dot4(h[1], w[1]) + dot4(h[2], w[2]) + dot4(h[3], w[3]);
    }
//#if ZEROS
    let ones = 0x01010101u;
    total += dot4(h[0], ones) + dot4(h[1], ones) + dot4(h[2], ones) + dot4(h[3], ones);
//#endif
  }
//#if ZEROS
  for (var g = 0u; g < GATES; g++) {
    sums[g] -= total * i32(load_columns(((d * 3u + 1u) * GATES + g) * params.hidden + column));
  }
//#endif
//#elif VECTORS
  let h_at = state_before(d, s, b);
  let r_at = ((d * params.all_gates + gate) * params.hidden + j) * params.hidden;
  var quads: array<vec4<f32>, GATES>;
  for (var k = 0u; k < params.hidden; k += 4u) {
    let h = h4_before(d, s, b, h_at, k);
    //#unroll
    for (var g = 0u; g < GATES; g++) {
      quads[g] += h * load4_r((r_at + g * params.hidden * params.hidden + k) >> 2u);
    }
  }
  var sums: array<f32, GATES>;
  //#unroll
  for (var g = 0u; g < GATES; g++) {
    sums[g] = (quads[g].x + quads[g].y) + (quads[g].z + quads[g].w);
  }
//#else
  var sums: array<f32, GATES>;
  let h_at = state_before(d, s, b);
  let r_at = ((d * params.all_gates + gate) * params.hidden + min(j, params.hidden - 1u)) * params.hidden;
  for (var k = share; k < params.hidden; k += SHARES) {
//#if RESET_FIRST
    var h = 0.0;
    if (gate == 2u) { h = load_reset(own_at(d, b) + k); } else { h = h_before(d, s, b, h_at, k); }
//#else
    let h = h_before(d, s, b, h_at, k);
//#endif
    //#unroll
    for (var g = 0u; g < GATES; g++) {
//#if RESET_FIRST
      if (g < count) { sums[g] += h * load_r(r_at + g * params.hidden * params.hidden + k); }
//#else
      sums[g] += h * load_r(r_at + g * params.hidden * params.hidden + k);
//#endif
    }
  }
//#endif
  //#unroll
  for (var g = 0u; g < GATES; g++) {
    parts[(share * UNITS + unit) * GATES + g] = sums[g];
  }
  if (SHARES > 1u) { workgroupBarrier(); }
  for (var width = SHARES / 2u; width > 0u; width >>= 1u) {
    if (share < width) {
      for (var g = 0u; g < GATES; g++) {
        parts[(share * UNITS + unit) * GATES + g] += parts[((share + width) * UNITS + unit) * GATES + g];
      }
    }
    workgroupBarrier();
  }
}

// The sum of gate `g` as `multiply` left it, for share 0 of the unit, which alone writes it.
fn summed(d: u32, j: u32, unit: u32, g: u32) -> f32 {
//#if BYTES
  let at = (d * 3u * GATES + g) * params.hidden + j;
  let exact = parts[unit * GATES + g] - i32(rounding.y - 128.0) * i32(load_columns(at + 2u * GATES * params.hidden));
  return f32(exact) * (rounding.x * load_columns(at));
//#else
  return parts[unit * GATES + g];
//#endif
}

// Unit `j` at step `s`: its gates are in workgroup memory.
fn step_unit(d: u32, b: u32, s: u32, t: u32, j: u32, unit: u32, phase: u32) {
  let x_at = d * params.xw_direction + t * params.xw_time + b * params.xw_batch + j;
  let own = own_at(d, b) + j;
  let h_new = state_after(d, s, b) + j;
//#if GRU
  let h_old = h_before(d, s, b, state_before(d, s, b), j);
//#endif
//#if LSTM
  let c_old = c_before(d, s, b, own, j);
  var zi = load_xw(x_at) + summed(d, j, unit, 0u);
  var zo = load_xw(x_at + params.hidden) + summed(d, j, unit, 1u);
  var zf = load_xw(x_at + 2u * params.hidden) + summed(d, j, unit, 2u);
  let zc = load_xw(x_at + 3u * params.hidden) + summed(d, j, unit, 3u);
//#if PEEPHOLE
  let p_at = d * 3u * params.hidden + j;
  zi += load_peephole(p_at) * c_old;
  zf += load_peephole(p_at + 2u * params.hidden) * c_old;
//#endif
  let i = act_f(limited(zi), d);
//#if INPUT_FORGET
  let f = 1.0 - i;
//#else
  let f = act_f(limited(zf), d);
//#endif
  let c = f * c_old + i * act_g(limited(zc), d);
//#if PEEPHOLE
  zo += load_peephole(p_at + params.hidden) * c;
//#endif
  store_cell(own, c);
  store_hs(h_new, act_f(limited(zo), d) * act_h(c, d));
//#endif
//#if RNN
  store_hs(h_new, act_f(limited(load_xw(x_at) + summed(d, j, unit, 0u)), d));
//#endif
//#if GRU
//#if RESET_FIRST
  if (phase == 0u) {
    store_update(own, act_f(limited(load_xw(x_at) + summed(d, j, unit, 0u)), d));
    store_reset(own, h_old * act_f(limited(load_xw(x_at + params.hidden) + summed(d, j, unit, 1u)), d));
    return;
  }
  let z = load_update(own);
  let candidate = load_xw(x_at + 2u * params.hidden) + summed(d, j, unit, 0u);
//#else
  let z = act_f(limited(load_xw(x_at) + summed(d, j, unit, 0u)), d);
  let r = act_f(limited(load_xw(x_at + params.hidden) + summed(d, j, unit, 1u)), d);
  var late = summed(d, j, unit, 2u);
//#if BIAS
  late += load_bias((d * 6u + 5u) * params.hidden + j);
//#endif
  let candidate = load_xw(x_at + 2u * params.hidden) + r * late;
//#endif
  store_hs(h_new, (1.0 - z) * act_g(limited(candidate), d) + z * h_old);
//#endif
}

@compute @workgroup_size(UNITS * SHARES)
//#include numbered_workgroup name=main place=lane number=group count=params.groups
  let unit = lane / SHARES;
  let share = lane % SHARES;
//#if LOOP
  let place = group;
//#else
  let place = group / params.blocks;
//#endif
  let d = place / params.batch;
  let b = place - d * params.batch;
  let length = length_of(b);
  let backward = is_backward(d);

//#if LOOP
  for (var s = params.first; s < params.first + params.steps; s++) {
//#if RESET_FIRST
    for (var phase = 0u; phase < 2u; phase++) {
//#else
    let phase = 0u;
    {
//#endif
//#if BYTES
      round_state(d, b, s, lane);
//#endif
      for (var block = 0u; block < params.blocks; block++) {
        let j = block * UNITS + unit;
        multiply(d, b, s, phase * 2u, select(GATES, 1u, phase == 1u), j, unit, share);
        if (share == 0u && j < params.hidden && s < length) {
          step_unit(d, b, s, select(s, length - 1u - s, backward), j, unit, phase);
        }
      }
      storageBarrier();
      workgroupBarrier();
    }
  }
//#else
  let s = params.first;
//#if BYTES
  round_state(d, b, s, lane);
  for (var turn = 0u; turn < params.turns; turn++) {
    let j = ((group - place * params.blocks) * params.turns + turn) * UNITS + unit;
    multiply(d, b, s, 0u, GATES, j, unit, share);
    if (share == 0u && j < params.hidden && s < length) {
      step_unit(d, b, s, select(s, length - 1u - s, backward), j, unit, 0u);
    }
    workgroupBarrier();
  }
//#else
  let j = (group - place * params.blocks) * UNITS + unit;
  let count = select(GATES, 1u, params.phase == 1u);
  multiply(d, b, s, params.phase * 2u, count, j, unit, share);
  if (share == 0u && j < params.hidden && s < length) {
    step_unit(d, b, s, select(s, length - 1u - s, backward), j, unit, params.phase);
  }
//#endif
//#endif
}
