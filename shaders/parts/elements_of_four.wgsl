// The entry point of invocations that write four neighbouring `element`s each.
@compute @workgroup_size(64)
//#include invocation_of_four
  store4_y(g, element(i.x), element(i.y), element(i.z), element(i.w));
}
