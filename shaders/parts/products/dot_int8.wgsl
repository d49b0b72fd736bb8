// The product of four signed bytes in a word each. PACKED_DOT: the device has an instruction for it.
fn dot4(a: u32, b: u32) -> i32 {
//#if PACKED_DOT
  return dot4I8Packed(a, b);
//#else
  return i8_dot4(a, b);
//#endif
}
