// @ts-check
/** Parts of a file that are kept in memory. */

/** @typedef {import('./scanner.js').Segment} Segment */

/**
 * The segment around `at`; null where it is in none.
 * @param {Segment[]} segments ascending, apart
 * @param {number} at
 * @returns {Segment | null}
 */
export function around(segments, at) {
  let [low, high] = [0, segments.length - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    const segment = segments[middle];
    if (at < segment.at) high = middle - 1;
    else if (at >= segment.at + segment.bytes.length) low = middle + 1;
    else return segment;
  }
  return null;
}

/**
 * `length` bytes at `at`, without a copy; null where no segment has them all.
 * @param {Segment[]} segments ascending, apart
 * @param {number} at
 * @param {number} length
 * @returns {Uint8Array | null}
 */
export function partOf(segments, at, length) {
  const segment = length ? around(segments, at) : { at, bytes: new Uint8Array() };
  if (!segment || at + length > segment.at + segment.bytes.length) return null;
  return segment.bytes.subarray(at - segment.at, at - segment.at + length);
}
