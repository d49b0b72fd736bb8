// y[n, t]: the votes for target t of the leaves row n reaches, aggregated over the trees; one invocation an element.
// A node is 8 words of `table`: feature, mode + 8 where NaN follows `yes`, yes, no, first and last vote (exclusive),
// first and last member of its set (exclusive); roots follow the nodes, the votes' targets follow the roots.
// `numbers` holds a threshold a node, then a weight a vote, then the members of sets.
//#tensors x, table, numbers -> y
const AGGREGATE: u32 = 1u;
const LEAF: u32 = 7u;

struct Params {
  size: u32,
  targets: u32,
  features: u32,
  nodes: u32,
  trees: u32,
  depth: u32,
  votes: u32,
}

fn goes_yes(node: u32, x: f32) -> bool {
  let flags = u32(load_table(node * 8u + 1u));
  if (is_nan(x)) { return flags >= 8u; }
  let split = load_numbers(node);
  switch (flags & 7u) {
    case 0u: { return x <= split; }
    case 1u: { return x < split; }
    case 2u: { return x >= split; }
    case 3u: { return x > split; }
    case 4u: { return x == split; }
    case 5u: { return x != split; }
    default: {
      let last = u32(load_table(node * 8u + 7u));
      for (var k = u32(load_table(node * 8u + 6u)); k < last; k++) {
        if (load_numbers(params.nodes + params.votes + k) == x) { return true; }
      }
      return false;
    }
  }
}

@compute @workgroup_size(64)
//#include invocation job=i size=64u jobs=size
  let row = i / params.targets;
  let wanted = i32(i - row * params.targets);
  var result = 0.0;
  var voted = false;
  for (var tree = 0u; tree < params.trees; tree++) {
    var node = u32(load_table(params.nodes * 8u + tree));
    for (var level = 0u; level < params.depth; level++) {
      if ((u32(load_table(node * 8u + 1u)) & 7u) == LEAF) { break; }
      let v = load_x(row * params.features + u32(load_table(node * 8u)));
      node = u32(load_table(node * 8u + select(3u, 2u, goes_yes(node, v))));
    }
    let last = u32(load_table(node * 8u + 5u));
    for (var k = u32(load_table(node * 8u + 4u)); k < last; k++) {
      if (load_table(params.nodes * 8u + params.trees + k) != wanted) { continue; }
      let weight = load_numbers(params.nodes + k);
      if (AGGREGATE < 2u) {
        result += weight;
      } else if (AGGREGATE == 2u) {
        result = select(weight, min(result, weight), voted);
      } else {
        result = select(weight, max(result, weight), voted);
      }
      voted = true;
    }
  }
  if (AGGREGATE == 0u) { result /= f32(params.trees); }
  store_y(i, result);
}
