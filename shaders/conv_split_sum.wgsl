// y[i] = finish(sum over s of partial[s * size + i] + bias[channel(i)]): the second half of a convolution whose k was
// shared by several workgroups.
//#tensors partial, bias -> y
//#type ACC = partial
//#variants BIAS=0 | BIAS=1 y=float16
const MANY: u32 = 0x10000000u;

struct Params {
  size: u32,      // elements of y
  splits: u32,
  pixels: u32,    // of a channel
  channels: u32,
}

fn finish(value: ACC, channel: u32, index: u32) -> ACC { return value; }

fn element(i: u32) -> ACC {
  var sum = ACC(0);
  for (var s = 0u; s < MANY; s++) {
    if (s >= params.splits) { break; }
    sum += load_partial(s * params.size + i);
  }
//#if BIAS
  sum += ACC(load_bias(channel_of(i)));
//#endif
  return sum;
}

fn channel_of(i: u32) -> u32 {
  return (i / params.pixels) % params.channels;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let g = global_index(gid, nwg, 64u);
  if (g * 4u >= params.size) { return; }
  let i = group_of_four(g, params.size);
  let y0 = finish(element(i.x), channel_of(i.x), i.x);
  let y1 = finish(element(i.y), channel_of(i.y), i.y);
  let y2 = finish(element(i.z), channel_of(i.z), i.z);
  let y3 = finish(element(i.w), channel_of(i.w), i.w);
  store4_y(g, y0, y1, y2, y3);
}
