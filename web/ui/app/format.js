// @ts-check
/** Format a number with three significant digits, without an exponent below 1e6.
 *
 * @param {number} value
 */
function three(value) {
  if (value === 0) return '0';
  if (value >= 99.95) return String(Math.round(value));
  return value.toPrecision(3).replace(/\.?0+$/, '');
}

/** Format a time: '0.84 ms', '12.3 ms', '2.41 s'.
 *
 * @param {number} ms
 */
export function formatTime(ms) {
  return ms >= 999.5 ? `${three(ms / 1000)} s` : `${three(ms)} ms`;
}

/** Format a remaining time, rounded: '5 s', '3 min', '1.5 h'.
 *
 * @param {number} seconds
 */
export function formatDuration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** Format a size in decimal units: '512 B', '61.4 KB', '8.4 MB'.
 *
 * @param {number} bytes
 */
export function formatBytes(bytes) {
  for (const [limit, unit] of /** @type {[number, string][]} */ ([[1e9, 'GB'], [1e6, 'MB'], [1e3, 'KB']])) {
    if (bytes >= limit) return `${three(bytes / limit)} ${unit}`;
  }
  return `${bytes} B`;
}

/** Format a shape: '[N, 3, 224, 224]'; unknown dimensions are '?'.
 *
 * @param {ReadonlyArray<number | string | null>} shape
 */
export function formatShape(shape) {
  return `[${shape.map((dimension) => dimension ?? '?').join(', ')}]`;
}

/**
 * Return a count with its noun: '1 node', '3 nodes'.
 * @param {number} count
 * @param {string} one
 * @param {string} [plural] suffix of the plural
 */
export function formatCount(count, one, plural = 's') {
  return `${count.toLocaleString('en')} ${count === 1 ? one : one + plural}`;
}

/** Format an element of a tensor: integers in full, other numbers with four significant digits.
 *
 * @param {number | bigint | string} value
 */
export function formatValue(value) {
  if (typeof value !== 'number' || Number.isInteger(value) || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

/** Return the median of values; NaN if there are none.
 *
 * @param {ReadonlyArray<number>} values
 */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
