// @ts-check
/** Statistics of run times. */

/** @typedef {{median_ms: number, p10_ms: number, p90_ms: number, runs_ms: number[]}} Spread */

/**
 * Return the value below which a share of the values lies, interpolated linearly; NaN without values.
 * @param {ReadonlyArray<number>} values
 * @param {number} share from 0 to 1
 */
export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  const place = share * (sorted.length - 1);
  const below = Math.floor(place);
  return sorted[below] + (place - below) * ((sorted[below + 1] ?? sorted[below]) - sorted[below]);
}

/** @param {number} value rounded to four significant digits */
export function rounded(value) {
  return Number.isFinite(value) ? Number(value.toPrecision(4)) : value;
}

/** Return the median of times, and the interval of the middle eighty percent. @param {number[]} times milliseconds @returns {Spread} */
export function spreadOf(times) {
  const [p10, median, p90] = [0.1, 0.5, 0.9].map((share) => rounded(quantile(times, share)));
  return { median_ms: median, p10_ms: p10, p90_ms: p90, runs_ms: times.map(rounded) };
}
