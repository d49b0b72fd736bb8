// How many fours of n elements each of `parts` gets: with it a fallback kernel need not know the size of a tile.
fn quads_each(n: u32, parts: u32) -> u32 {
  return (n + 4u * parts - 1u) / (4u * parts);
}
