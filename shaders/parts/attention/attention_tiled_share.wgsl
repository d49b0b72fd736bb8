// What four rows of weighted sums of values are multiplied with; SINK and EMPTY_ZERO: as attention_share.wgsl.
    var whole = vec4<f32>();
    //#unroll
    for (var n = 0u; n < GROUPS; n++) {
      whole += part[n * ROW_QUADS + g * TY + ty];
    }
    var share = vec4<f32>(1.0);
//#if SINK
    let sink = load_sink(at.y);
    let highest = max(decay[g * TY + ty], vec4<f32>(sink));
    share = exp(decay[g * TY + ty] - highest);
    whole = whole * share + exp(vec4<f32>(sink) - highest);
//#endif
//#if EMPTY_ZERO
    share *= select(1.0 / whole, vec4<f32>(), whole == vec4<f32>());
//#else
    share /= whole;
//#endif
