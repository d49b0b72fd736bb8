// `lows[0]` and `highs[0]`: the range that all invocations of a workgroup found.
  lows[lane] = low;
  highs[lane] = high;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half >>= 1u) {
    if (lane < half) {
      lows[lane] = min(lows[lane], lows[lane + half]);
      highs[lane] = max(highs[lane], highs[lane + half]);
    }
    workgroupBarrier();
  }
