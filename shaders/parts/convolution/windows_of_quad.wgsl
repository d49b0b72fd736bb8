// Where the windows of four pixels `p` in rows `oh` begin.
  quad.w = vec4<i32>(p - oh * params.output.z) * params.strides.z - params.pads.z;
//#if VOLUME
  let od = oh / params.output.y;
  quad.h = vec4<i32>(oh - od * params.output.y) * params.strides.y - params.pads.y;
  quad.d = vec4<i32>(od) * params.strides.x - params.pads.x;
//#else
  quad.h = vec4<i32>(oh) * params.strides.y - params.pads.y;
//#endif
