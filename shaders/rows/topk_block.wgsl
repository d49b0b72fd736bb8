// The first `keep` pairs (key, index), sorted, of every block of BLOCK pairs of a row; greatest key first, ties by index.
//
// A workgroup sorts a block in workgroup memory by a bitonic network (Batcher, 1968). Missing pairs sort last.
// WIDE: keys of 64 bits.
//#tensors keys, indices -> top_keys, top_indices
//#type K = keys
const BLOCK: u32 = 1024u;
const THREADS: u32 = 256u;

struct Params {
  rows: u32,
  length: u32,
  blocks: u32,
  keep: u32,
}

var<workgroup> block_keys: array<K, BLOCK>;
var<workgroup> block_indices: array<u32, BLOCK>;

fn before(a: K, ia: u32, b: K, ib: u32) -> bool {
//#if WIDE
  return sorts_before_64(a, ia, b, ib);
//#else
  return sorts_before_32(a, ia, b, ib);
//#endif
}

@compute @workgroup_size(THREADS)
//#include numbered_workgroup name=main place=lane number=group count="params.rows * params.blocks"
  let row = group / params.blocks;
  let first = (group - row * params.blocks) * BLOCK;
  for (var n = 0u; n < BLOCK / THREADS; n++) {
    let i = n * THREADS + lane;
    let at = row * params.length + first + i;
    let real = first + i < params.length;
    block_keys[i] = K();
    block_indices[i] = 0xffffffffu;
    if (real) {
      block_keys[i] = load_keys(at);
      block_indices[i] = load_indices(at);
    }
  }
  workgroupBarrier();
  for (var size = 2u; size <= BLOCK; size <<= 1u) {
    for (var step = size >> 1u; step > 0u; step >>= 1u) {
      for (var n = 0u; n < BLOCK / 2u / THREADS; n++) {
        let pair = n * THREADS + lane;
        let i = (pair / step) * step * 2u + pair % step;
        let j = i + step;
        let ki = block_keys[i];
        let kj = block_keys[j];
        let ii = block_indices[i];
        let ij = block_indices[j];
        let rising = (i & size) == 0u;
        if (before(kj, ij, ki, ii) == rising) {
          block_keys[i] = kj;
          block_keys[j] = ki;
          block_indices[i] = ij;
          block_indices[j] = ii;
        }
      }
      workgroupBarrier();
    }
  }
  for (var i = lane; i < params.keep; i += THREADS) {
    let at = group * params.keep + i;
    store_top_keys(at, block_keys[i]);
    store_top_indices(at, block_indices[i]);
  }
}
