// The components that turn together: `j`, the pair that component c is of, whether it comes first, and the other one.
//#if PAIRS
    let j = c / 2u;
    let is_first = (c & 1u) == 0u;
    let across = normed(row, c ^ 1u);
//#else
    let is_first = c < params.half;
    let j = select(c - params.half, c, is_first);
    let across = normed(row, select(c - params.half, c + params.half, is_first));
//#endif
