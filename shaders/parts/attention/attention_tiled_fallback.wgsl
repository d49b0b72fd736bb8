// The entry point that runs until the other's pipeline is there: `kernels/ir/fallback.py`.
@compute @workgroup_size(64)
//#include numbered_workgroup name=fallback place=local number=job count=params.jobs
  let split = job / params.plane;
  let within = job - split * params.plane;
  let head = within / params.tiles;
  let rows = (params.queries + params.tiles - 1u) / params.tiles;
  let first = (within - head * params.tiles) * rows;
  let row = first + local;
  if (local >= rows || row >= params.queries) { return; }
  let batch = head / params.heads;
  let at = vec2<u32>(batch, head - batch * params.heads);
  let at_kv = vec2<u32>(batch, at.y / params.group);
  var bases = params.bases;
  bases.x += dot(at, params.q_strides.xy) + row * params.q_strides.z;
  bases.y += dot(at_kv, params.k_strides.xy);
  bases.z += dot(at_kv, params.v_strides.xy);
  bases.w = dot(vec3<u32>(at, row), params.mask_strides.xyz);
//#if RANGE
  let seen = visible(batch, row);
  let oldest = visible(batch, first).x;
  let stretch = max(visible(batch, min(first + rows, params.queries) - 1u).y, oldest) - oldest;
  let share = (stretch + params.splits - 1u) / params.splits;
  let start = oldest + split * share;
  let keys = vec2<u32>(max(start, seen.x), min(start + share, seen.y));
//#else
  let share = (params.keys + params.splits - 1u) / params.splits;
  let keys = vec2<u32>(split * share, min(split * share + share, params.keys));
//#endif
  let out = params.bases.w + split * params.split_stride + dot(vec3<u32>(at, row), params.y_strides.xyz);
  let slot = ((split * (params.plane / params.tiles) + head) * params.queries + row) * 2u;
  attend(bases, keys, out, slot, at.y);
}
