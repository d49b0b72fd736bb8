// y[n, c, k, o] = mask[n, g, k, o] * x[n, c] sampled at o * stride - pad + k * dilation + offset[n, g, k, :, o]
//
// The columns of a deformable convolution: linear interpolation, zero outside x. A pointwise convolution over c and k
// follows. Axes are depth, height, width; the last RANK of them are real.
//#tensors x, offset, mask -> y
const RANK: u32 = 2u;

struct Params {
  input: vec4<u32>,     // depth, height, width; channels
  output: vec4<u32>,    // depth, height, width; their product
  kernel_shape: vec4<u32>, // depth, height, width; their product
  strides: vec4<i32>,
  dilations: vec4<i32>,
  pads: vec4<i32>,
  per_group: u32,       // channels that share an offset
  size: u32,            // elements of y
}

// Depth, height and width of a place in a volume.
fn split(i: u32, shape: vec4<u32>) -> vec3<u32> {
  let h = i / shape.z;
  return vec3<u32>(h / shape.y, h % shape.y, i % shape.z);
}

fn element(i: u32) -> f32 {
  let o = i % params.output.w;
  let k = (i / params.output.w) % params.kernel_shape.w;
  let map = i / (params.output.w * params.kernel_shape.w);
  let image = map / params.input.w;
  let groups = params.input.w / params.per_group;
  let group = image * groups + (map % params.input.w) / params.per_group;
  let window = vec3<i32>(split(o, params.output)) * params.strides.xyz - params.pads.xyz;
  var at = vec3<f32>(window + vec3<i32>(split(k, params.kernel_shape)) * params.dilations.xyz);
  for (var a = 0u; a < RANK; a++) {
    at[a + 3u - RANK] += load_offset(((group * params.kernel_shape.w + k) * RANK + a) * params.output.w + o);
  }
  let low = floor(at);
  let part = at - low;
  var sum = 0.0;
  for (var corner = 0u; corner < (1u << RANK); corner++) {
    let bits = vec3<u32>((corner >> 2u) & 1u, (corner >> 1u) & 1u, corner & 1u);
    let p = vec3<i32>(low) + vec3<i32>(bits);
    if (any(p < vec3<i32>(0)) || any(p >= vec3<i32>(params.input.xyz))) { continue; }
    let weight = select(1.0 - part, part, bits == vec3<u32>(1u));
    let line = (map * params.input.x + u32(p.x)) * params.input.y + u32(p.y);
    sum += weight.x * weight.y * weight.z * load_x(line * params.input.z + u32(p.z));
  }
//#if MASK
  sum *= load_mask((group * params.kernel_shape.w + k) * params.output.w + o);
//#endif
  return sum;
}

//#include elements_of_four
