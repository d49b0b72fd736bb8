// y[p, c, r] = x[p, r, c]: 32 x 32 tiles through workgroup memory, so that reads and writes both run along memory.
// Planes p = (p0, p1) lie anywhere in x and y; x's columns and y's columns are contiguous. VECTOR stores four elements
// at once: the number of rows of x is then a multiple of 4.
//#tensors x -> y
//#type T = x
const WG: u32 = 256u;
const TILE: u32 = 32u;

struct Params {
  tiles: u32,
  tiles_r: u32,
  tiles_c: u32,
  rows: u32,
  columns: u32,
  planes_1: u32,
  x_row: u32,
  y_row: u32,
  x_plane_0: u32,
  x_plane_1: u32,
  y_plane_0: u32,
  y_plane_1: u32,
}

// One element of padding a row keeps the columns of a tile in different banks.
var<workgroup> tile: array<T, TILE * (TILE + 1u)>;

@compute @workgroup_size(WG)
//#include numbered_workgroup name=main place=lane number=group count=params.tiles
  let band = group / params.tiles_c;
  let plane = band / params.tiles_r;
  let c0 = (group - band * params.tiles_c) * TILE;
  let r0 = (band - plane * params.tiles_r) * TILE;
  let p0 = plane / params.planes_1;
  let p1 = plane - p0 * params.planes_1;
  let x_at = p0 * params.x_plane_0 + p1 * params.x_plane_1;
  let y_at = p0 * params.y_plane_0 + p1 * params.y_plane_1;

  for (var k = 0u; k < TILE * TILE / WG; k++) {
    let r = k * (WG / TILE) + lane / TILE;
    let c = lane % TILE;
    if (r0 + r < params.rows && c0 + c < params.columns) {
      tile[r * (TILE + 1u) + c] = load_x(x_at + (r0 + r) * params.x_row + c0 + c);
    }
  }
  workgroupBarrier();
//#if VECTOR
  let c = lane / (TILE / 4u);
  let r = lane % (TILE / 4u) * 4u;
  if (c0 + c < params.columns && r0 + r < params.rows) {
    let at = r * (TILE + 1u) + c;
    let to = (y_at + (c0 + c) * params.y_row + r0 + r) / 4u;
    store4_y(to, tile[at], tile[at + TILE + 1u], tile[at + 2u * (TILE + 1u)], tile[at + 3u * (TILE + 1u)]);
  }
//#else
  for (var k = 0u; k < TILE * TILE / WG; k++) {
    let c = k * (WG / TILE) + lane / TILE;
    let r = lane % TILE;
    if (c0 + c < params.columns && r0 + r < params.rows) {
      store_y(y_at + (c0 + c) * params.y_row + r0 + r, tile[r * (TILE + 1u) + c]);
    }
  }
//#endif
}
