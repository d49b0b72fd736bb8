// y = det(x): one workgroup a matrix eliminates in `work`, largest pivot first, and multiplies the diagonal.
//#tensors x -> work, y
const WG: u32 = 64u;

struct Params {
  count: u32,
  m: u32,
}

var<workgroup> pivot: u32;

@compute @workgroup_size(WG)
//#include numbered_workgroup name=main place=lane number=number count=params.count
  let m = params.m;
  let base = number * m * m;
  for (var i = lane; i < m * m; i += WG) { store_work(base + i, load_x(base + i)); }
  storageBarrier();
  workgroupBarrier();
  var result = 1.0;
  for (var k = 0u; k < m; k++) {
    if (lane == 0u) {
      pivot = k;
      for (var i = k + 1u; i < m; i++) {
        if (abs(load_work(base + i * m + k)) > abs(load_work(base + pivot * m + k))) { pivot = i; }
      }
    }
    workgroupBarrier();
    let other = pivot;
    if (other != k) {
      result = -result;
      for (var j = k + lane; j < m; j += WG) {
        let above = load_work(base + k * m + j);
        store_work(base + k * m + j, load_work(base + other * m + j));
        store_work(base + other * m + j, above);
      }
    }
    storageBarrier();
    workgroupBarrier();
    let top = load_work(base + k * m + k);
    result *= top;
    let rest = m - k - 1u;
    for (var n = lane; n < rest * rest; n += WG) {
      let i = k + 1u + n / rest;
      let j = k + 1u + n % rest;
      let at = base + i * m + j;
      if (top != 0.0) { store_work(at, load_work(at) - load_work(base + i * m + k) / top * load_work(base + k * m + j)); }
    }
    storageBarrier();
    workgroupBarrier();
  }
  if (lane == 0u) { store_y(number, result); }
}
