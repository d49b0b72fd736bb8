// y[k] = x[first] op ... op x[k] along rows of `length` elements that lie `inner` apart; op is + or, PRODUCT, *.
// EXCLUSIVE: without x[k] itself. REVERSE: from the last element to the first. WIDE: 64-bit integers.
//
// A workgroup of WG invocations a row: each folds a run of neighbours, the totals are scanned in workgroup memory
// (Hillis and Steele, 1986), and every run is gone through again from the total before it. ALONE: one invocation a row.
//#tensors x -> y
//#type T = x
const WG: u32 = 64u;

struct Params {
  rows: u32,
  length: u32,
  inner: u32,
  run: u32,
}

//#if !ALONE
var<workgroup> totals: array<T, WG>;
//#endif

fn combine(a: T, b: T) -> T {
//#if WIDE
//#if PRODUCT
  return i64_mul(a, b);
//#else
  return i64_add(a, b);
//#endif
//#elif PRODUCT
  return a * b;
//#else
  return a + b;
//#endif
}

fn neutral() -> T {
//#if PRODUCT
//#if WIDE
  return vec2<u32>(1u, 0u);
//#else
  return T(1);
//#endif
//#else
  return T();
//#endif
}

// Where element `k` of the scan's order is.
fn place(row: u32, k: u32) -> u32 {
  let outer = row / params.inner;
//#if REVERSE
  let at = params.length - 1u - k;
//#else
  let at = k;
//#endif
  return (outer * params.length + at) * params.inner + (row - outer * params.inner);
}

fn write_run(row: u32, first: u32, before: T) {
  let last = min(first + params.run, params.length);
  var total = before;
  for (var k = first; k < last; k++) {
    let at = place(row, k);
    let next = combine(total, load_x(at));
//#if EXCLUSIVE
    store_y(at, total);
//#else
    store_y(at, next);
//#endif
    total = next;
  }
}

//#if ALONE
@compute @workgroup_size(WG)
//#include invocation job=row size=WG jobs=rows
  write_run(row, 0u, neutral());
}
//#else
@compute @workgroup_size(WG)
//#include numbered_workgroup name=main place=lane number=row count=params.rows
  let first = lane * params.run;
  let last = min(first + params.run, params.length);
  var total = neutral();
  for (var k = first; k < last; k++) { total = combine(total, load_x(place(row, k))); }
  totals[lane] = total;
  workgroupBarrier();
  for (var step = 1u; step < WG; step <<= 1u) {
    var sum = totals[lane];
    if (lane >= step) { sum = combine(totals[lane - step], sum); }
    workgroupBarrier();
    totals[lane] = sum;
    workgroupBarrier();
  }
  var before = neutral();
  if (lane > 0u) { before = totals[lane - 1u]; }
  write_run(row, first, before);
}
//#endif
