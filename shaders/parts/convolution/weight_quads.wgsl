// The four weights in the low bits of `word`, or (CODES) what their codes stand for.
//#if CODES
//#if NF4
  return nf4_quad(word);
//#else
  return fp4_quad(word);
//#endif
//#elif BITS8
  return weights_8(word, $base);
//#elif BITS2
  return weights_2(word, $base);
//#else
  return weights_4(word, $base);
//#endif
