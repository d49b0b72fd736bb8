// y = exp(x - m) / sum(exp(x - m)), m = max(x), over `length` elements that lie `inner` apart.
// One workgroup a row: each invocation folds its share into a running (max, sum), the pairs are merged in a tree.
// Online normaliser: Milakov and Gimelshein, 2018. LOG gives x - m - log(sum).
//#tensors x -> y
//#variants LOG=0 | LOG=1 | LOG=0 x=float16 y=float16
const WG: u32 = 64u;

struct Params {
  rows: u32,
  length: u32,
  inner: u32,
}

var<workgroup> part_max: array<f32, WG>;
var<workgroup> part_sum: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = workgroup_index(wid, nwg);
  if (row >= params.rows) { return; }
  let outer = row / params.inner;
  let base = outer * params.length * params.inner + (row - outer * params.inner);

  var top = -3.4028234663852886e38;
  var sum = 0.0;
  for (var k = lane; k < params.length; k += WG) {
    let v = load_x(base + k * params.inner);
    let higher = max(top, v);
    sum = sum * exp(top - higher) + exp(v - higher);
    top = higher;
  }
  part_max[lane] = top;
  part_sum[lane] = sum;
  workgroupBarrier();
  for (var step = WG / 2u; step > 0u; step >>= 1u) {
    if (lane < step) {
      let other = part_max[lane + step];
      let higher = max(part_max[lane], other);
      part_sum[lane] = part_sum[lane] * exp(part_max[lane] - higher) + part_sum[lane + step] * exp(other - higher);
      part_max[lane] = higher;
    }
    workgroupBarrier();
  }
  top = part_max[0];
  sum = part_sum[0];
  for (var k = lane; k < params.length; k += WG) {
    let at = base + k * params.inner;
//#if LOG
    store_y(at, load_x(at) - top - log(sum));
//#else
    store_y(at, exp(load_x(at) - top) / sum);
//#endif
  }
}
