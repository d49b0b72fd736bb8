// The entry point that runs until the other's pipeline is there: `kernels/quick.py`.
@compute @workgroup_size(ROWS)
fn quick(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let job = workgroup_index(wid, nwg);
  if (job >= params.jobs) { return; }
  let split = job / params.plane;
  let within = job - split * params.plane;
  let head = within / params.tiles;
  let first = (within - head * params.tiles) * ROWS;
  let row = first + local;
  if (row >= params.queries) { return; }
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
  let tiles = (max(visible(batch, min(first + ROWS, params.queries) - 1u).y, oldest) - oldest + KEYS - 1u) / KEYS;
  let share = (tiles + params.splits - 1u) / params.splits;
  let start = oldest + split * share * KEYS;
  let keys = vec2<u32>(max(start, seen.x), min(start + share * KEYS, seen.y));
//#else
  let start = split * params.steps * KEYS;
  let keys = vec2<u32>(start, min(start + params.steps * KEYS, params.keys));
//#endif
  let out = params.bases.w + split * params.split_stride + dot(vec3<u32>(at, row), params.y_strides.xyz);
  let slot = ((split * (params.plane / params.tiles) + head) * params.queries + row) * 2u;
  attend(bases, keys, out, slot, at.y);
}
