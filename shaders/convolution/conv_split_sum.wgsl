// y[i] = finish(sum over s of partial[s * size + i] + bias[channel(i)]): the second half of a convolution whose k was
// shared by several workgroups.
//#tensors partial, bias -> y
//#type ACC = partial
const MANY: u32 = 0x10000000u;

struct Params {
  size: u32,      // elements of y
  splits: u32,
  pixels: u32,    // of a channel
  channels: u32,
}

fn finish(value: ACC, channel: u32, index: u32) -> ACC { return value; }

fn share(s: u32, i: vec4<u32>) -> vec4<ACC> {
  let at = s * params.size + i;
  return vec4<ACC>(load_partial(at.x), load_partial(at.y), load_partial(at.z), load_partial(at.w));
}

// Four elements; two shares of each are on their way at once.
fn elements(i: vec4<u32>) -> vec4<ACC> {
  let last = params.splits - 1u;
  var sum = vec4<ACC>();
  for (var s = 0u; s < MANY; s += 2u) {
    if (s >= params.splits) { break; }
    let other = share(min(s + 1u, last), i);
    sum += share(s, i);
    sum += select(vec4<ACC>(), other, s < last);
  }
//#if BIAS
  sum += vec4<ACC>(
    ACC(load_bias(channel_of(i.x))), ACC(load_bias(channel_of(i.y))), ACC(load_bias(channel_of(i.z))),
    ACC(load_bias(channel_of(i.w))));
//#endif
  return sum;
}

fn channel_of(i: u32) -> u32 {
  return (i / params.pixels) % params.channels;
}

@compute @workgroup_size(64)
//#include invocation_of_four
  let sum = elements(i);
  let y0 = finish(sum.x, channel_of(i.x), i.x);
  let y1 = finish(sum.y, channel_of(i.y), i.y);
  let y2 = finish(sum.z, channel_of(i.z), i.z);
  let y3 = finish(sum.w, channel_of(i.w), i.w);
  store4_y(g, y0, y1, y2, y3);
}
