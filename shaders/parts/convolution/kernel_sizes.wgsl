// The kernel of a convolution or of pooling: positions along depth, height and width.
const KD: u32 = 1u;
const KH: u32 = 1u;
const KW: u32 = 1u;
