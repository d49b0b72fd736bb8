// One step of a bitonic sorting network (Batcher, 1968) over rows of `length` pairs (key, index), a power of two;
// greatest key first, ties by index. In place. WIDE: keys of 64 bits.
//#tensors -> keys, indices
struct Params {
  pairs: u32,
  half: u32,
  size: u32,
  step: u32,
}

@compute @workgroup_size(64)
//#include invocation job=n size=64u jobs=pairs
  let row = n / params.half;
  let pair = n - row * params.half;
  let place = (pair / params.step) * params.step * 2u + pair % params.step;
  let i = row * params.half * 2u + place;
  let j = i + params.step;
  let ki = load_keys(i);
  let kj = load_keys(j);
  let ii = load_indices(i);
  let ij = load_indices(j);
//#if WIDE
  let swapped = sorts_before_64(kj, ij, ki, ii);
//#else
  let swapped = sorts_before_32(kj, ij, ki, ii);
//#endif
  if (swapped == ((place & params.size) == 0u)) {
    store_keys(i, kj);
    store_keys(j, ki);
    store_indices(i, ij);
    store_indices(j, ii);
  }
}
