// The largest code of a packed row, vec4s of codes in a word, and what puts four codes into its low bits.
//#if NIBBLES
const MOST_CODE: f32 = 15.0f;
const WORD_QUADS: u32 = 2u;
const PLACES: vec4<u32> = vec4<u32>(1u, 0x10u, 0x100u, 0x1000u);
//#else
const MOST_CODE: f32 = 255.0f;
const WORD_QUADS: u32 = 1u;
const PLACES: vec4<u32> = vec4<u32>(1u, 0x100u, 0x10000u, 0x1000000u);
//#endif
