// Four neighbours `v` from element `k` of a row on, with the scale and the bias of their channel or group.
//#if AFFINE
    let which = select(channel, group, params.per_group == 1u);
    v = v * load_scale(which) + load_bias(which);
//#endif
    let y0 = finish(v[0], channel, base + k);
    let y1 = finish(v[1], channel, base + k + 1u);
    let y2 = finish(v[2], channel, base + k + 2u);
    let y3 = finish(v[3], channel, base + k + 3u);
    store4_y((base + k) >> 2u, y0, y1, y2, y3);
