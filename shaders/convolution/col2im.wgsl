// y[n, c, i] = sum over k, o with o * stride - pad + k * dilation = i of x[n, c, k, o]
//
// The transpose of taking windows: every element gathers the blocks that cover it.
//#tensors x -> y
//#type T = y
//#include kernel_sizes

struct Params {
  image: vec4<u32>,     // depth, height, width; their product
  blocks: vec4<u32>,    // along depth, height, width; their product
  strides: vec4<i32>,
  dilations: vec4<i32>,
  pads: vec4<i32>,
  size: u32,            // elements of y
}

fn add(a: T, b: T) -> T {
//#if WIDE
  return i64_add(a, b);
//#elif BOOLEAN
  return a || b;
//#else
  return a + b;
//#endif
}

// The block along one axis that has element i under position k; -1 where none has.
fn block_of(i: u32, k: u32, axis: u32) -> i32 {
  let t = i32(i) + params.pads[axis] - i32(k) * params.dilations[axis];
  let o = t / params.strides[axis];
  return select(-1, o, t >= 0 && o * params.strides[axis] == t && o < i32(params.blocks[axis]));
}

fn element(i: u32) -> T {
  let map = i / params.image.w;
  let line = i / params.image.z;
  let w = i % params.image.z;
  let h = line % params.image.y;
  let d = (line / params.image.y) % params.image.x;
  var sum = T();
  for (var kd = 0u; kd < KD; kd++) {
    let od = block_of(d, kd, 0u);
    if (od < 0) { continue; }
    for (var kh = 0u; kh < KH; kh++) {
      let oh = block_of(h, kh, 1u);
      if (oh < 0) { continue; }
      for (var kw = 0u; kw < KW; kw++) {
        let ow = block_of(w, kw, 2u);
        if (ow < 0) { continue; }
        let column = map * (KD * KH * KW) + (kd * KH + kh) * KW + kw;
        let o = (u32(od) * params.blocks.y + u32(oh)) * params.blocks.z + u32(ow);
        sum = add(sum, load_x(column * params.blocks.w + o));
      }
    }
  }
  return sum;
}

//#include elements_of_four
