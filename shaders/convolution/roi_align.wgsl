// y[r, c, ph, pw] = mean (MAXIMUM: greatest weighted corner) of x[batch[r], c] at points of a grid in bin (ph, pw) of
// region r, interpolated bilinearly; a point more than a pixel outside x is 0.
//
// The maximum is over the products of corners and weights, as the reference implementation has it, not over their sums.
// One invocation makes four neighbouring outputs.
//#tensors x, rois, batch_indices -> y
const MANY: u32 = 0x10000000u;

struct Params {
  height: u32,
  width: u32,
  channels: u32,
  bins_h: u32,
  bins_w: u32,
  ratio: u32,           // points a bin and axis; 0: as many as a bin has pixels
  size: u32,            // elements of y
  scale: f32,
  shift: f32,           // 0.5 for half_pixel
  least: f32,           // extent of a region at least, 1 without half_pixel; else far below every extent
}

// (lower index, upper index) of the pixels around v along one axis, and v's distance from the lower.
struct Between {
  low: u32,
  high: u32,
  part: f32,
  inside: bool,
}

fn between(v: f32, extent: u32) -> Between {
  var found: Between;
  found.inside = v >= -1.0 && v <= f32(extent);
  let at = clamp(v, 0.0, f32(extent) - 1.0);
  found.low = u32(at);
  found.high = min(found.low + 1u, extent - 1u);
  found.part = at - f32(found.low);
  return found;
}

fn element(i: u32) -> f32 {
  let pw = i % params.bins_w;
  let ph = (i / params.bins_w) % params.bins_h;
  let map = i / (params.bins_w * params.bins_h);
  let roi = map / params.channels;
  let plane = load_batch_indices(roi).x * params.channels + map % params.channels;
  let corner = vec4<f32>(load_rois(roi * 4u), load_rois(roi * 4u + 1u), load_rois(roi * 4u + 2u), load_rois(roi * 4u + 3u));
  let box = corner * params.scale - params.shift;
  let extent = max(box.zw - box.xy, vec2<f32>(params.least));
  let bin = extent / vec2<f32>(f32(params.bins_w), f32(params.bins_h));
  var points = vec2<u32>(params.ratio);
  if (params.ratio == 0u) { points = vec2<u32>(max(ceil(bin), vec2<f32>(0.0))); }
  let start = box.xy + vec2<f32>(f32(pw), f32(ph)) * bin;

  var sum = 0.0;
  var first = true;
  for (var iy = 0u; iy < MANY; iy++) {
    if (iy >= points.y) { break; }
    let y = between(start.y + (f32(iy) + 0.5) * bin.y / f32(points.y), params.height);
    for (var ix = 0u; ix < MANY; ix++) {
      if (ix >= points.x) { break; }
      let x = between(start.x + (f32(ix) + 0.5) * bin.x / f32(points.x), params.width);
      var parts = vec4<f32>(0.0);
      if (x.inside && y.inside) {
        let upper = (plane * params.height + y.low) * params.width;
        let lower = (plane * params.height + y.high) * params.width;
        let corners = vec4<f32>(load_x(upper + x.low), load_x(upper + x.high), load_x(lower + x.low), load_x(lower + x.high));
        let across = vec2<f32>(1.0 - x.part, x.part);
        parts = corners * vec4<f32>(across * (1.0 - y.part), across * y.part);
      }
//#if MAXIMUM
      let best = nan_max(nan_max(parts.x, parts.y), nan_max(parts.z, parts.w));
      sum = select(nan_max(sum, best), best, first);
      first = false;
//#else
      sum += parts.x + parts.y + parts.z + parts.w;
//#endif
    }
  }
//#if !MAXIMUM
  sum = sum / max(f32(points.x * points.y), 1.0);
//#endif
  return sum;
}

//#include elements_of_four
