// y[r, c, ph, pw] = the greatest x[batch, c] in bin (ph, pw) of region r, whose borders are rounded to pixels; 0 where
// the bin is empty. One invocation makes four neighbouring outputs.
//#tensors x, rois -> y
const MANY: u32 = 0x10000000u;

struct Params {
  height: u32,
  width: u32,
  channels: u32,
  bins_h: u32,
  bins_w: u32,
  size: u32,            // elements of y
  scale: f32,
}

// Half away from zero, as C rounds.
fn round_away(v: f32) -> f32 {
  return sign(v) * floor(abs(v) + 0.5);
}

fn element(i: u32) -> f32 {
  let pw = i % params.bins_w;
  let ph = (i / params.bins_w) % params.bins_h;
  let map = i / (params.bins_w * params.bins_h);
  let roi = map / params.channels;
  let plane = u32(load_rois(roi * 5u)) * params.channels + map % params.channels;
  let first = vec2<f32>(round_away(load_rois(roi * 5u + 1u) * params.scale), round_away(load_rois(roi * 5u + 2u) * params.scale));
  let last = vec2<f32>(round_away(load_rois(roi * 5u + 3u) * params.scale), round_away(load_rois(roi * 5u + 4u) * params.scale));
  let bin = max(last - first + 1.0, vec2<f32>(1.0)) / vec2<f32>(f32(params.bins_w), f32(params.bins_h));
  let number = vec2<f32>(f32(pw), f32(ph));
  let edge = vec2<f32>(f32(params.width), f32(params.height));
  let start = vec2<u32>(clamp(floor(number * bin) + first, vec2<f32>(0.0), edge));
  let stop = vec2<u32>(clamp(ceil((number + 1.0) * bin) + first, vec2<f32>(0.0), edge));
  if (any(stop <= start)) { return 0.0; }
  var best = load_x((plane * params.height + start.y) * params.width + start.x);
  for (var h = 0u; h < MANY; h++) {
    if (start.y + h >= stop.y) { break; }
    for (var w = 0u; w < MANY; w++) {
      if (start.x + w >= stop.x) { break; }
      best = nan_max(best, load_x((plane * params.height + start.y + h) * params.width + start.x + w));
    }
  }
  return best;
}

//#include elements_of_four
