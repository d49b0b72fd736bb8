// The entry point that runs until the other's pipeline is there: `kernels/ir/fallback.py`.
@compute @workgroup_size(8)
//#include numbered_workgroup name=fallback place=local number=job count=params.jobs
  let split = job / params.plane;
  let within = job - split * params.plane;
  let shared_head = within / params.blocks;
  let every = params.queries * params.group;
  let rows = (every + params.blocks - 1u) / params.blocks;
  let row0 = (within - shared_head * params.blocks) * rows;
  let kv_heads = params.heads / params.group;
  let batch = shared_head / kv_heads;
  let kv_head = shared_head - batch * kv_heads;
  let place = row_of(row0 + local);
  if (local >= rows || !place.is_real) { return; }
//#if RANGE
  let seen = visible(batch, place.query);
  let oldest = visible(batch, row_of(row0).query).x;
  let end = max(oldest, visible(batch, row_of(min(row0 + rows, every) - 1u).query).y);
//#else
  let seen = vec2<u32>(0u, params.keys);
  let oldest = 0u;
  let end = params.keys;
//#endif
  let share = (end - oldest + params.splits - 1u) / params.splits;
  let start = min(oldest + split * share, end);
  let at = vec3<u32>(batch, kv_head * params.group + place.head, place.query);
  var bases = params.bases;
  bases.x += dot(at, params.q_strides.xyz);
  bases.y += dot(vec2<u32>(batch, kv_head), params.k_strides.xy);
  bases.z += dot(vec2<u32>(batch, kv_head), params.v_strides.xy);
  bases.w = dot(at, params.mask_strides.xyz);
  let out = params.bases.w + dot(at, params.y_strides.xyz) + split * params.split_stride;
  let slot = 2u * (split * params.rows + (at.x * params.heads + at.y) * params.queries + at.z);
  attend(bases, vec2<u32>(max(start, seen.x), min(min(start + share, end), seen.y)), out, slot, at.y);
}
