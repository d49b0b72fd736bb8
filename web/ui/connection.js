// @ts-check
/** The speed of the connection, and the cost of starting Python on it. */

import { PYTHON_BYTES } from '../sizes.js';

/** Bytes a second below which Python starts only on demand: its download would take half a minute. */
const SLOW = 400_000;

/** Bytes of a file above which its transfer shows the connection's speed: shorter ones arrive at once. */
const LONG = 1 << 16;

/**
 * Return the bytes a second of the fastest file, or of all files together; null if none was long enough, or none came from the network.
 * @param {PerformanceResourceTiming[]} entries entries of files that were requested together
 */
function rateOf(entries) {
  const sent = entries.filter(({ transferSize }) => transferSize > LONG);
  if (!sent.length) return null;
  const rates = sent.map(({ transferSize, responseStart, responseEnd }) => transferSize / (responseEnd - responseStart));
  const [begin, end] = [Math.min(...sent.map(({ responseStart }) => responseStart)), Math.max(...sent.map(({ responseEnd }) => responseEnd))];
  const together = sent.reduce((sum, { transferSize }) => sum + transferSize, 0) / (end - begin);
  return 1000 * Math.max(together, ...rates);
}

/**
 * Return the bytes a second, if known, and whether the connection is slow or metered. Browsers' `downlink` is a rough estimate, used for
 * the text only.
 */
export function connection() {
  const { saveData = false, effectiveType = '', downlink = 0 } = /** @type {any} */ (navigator).connection ?? {};
  const files = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType('resource'));
  const measured = rateOf(files.filter(({ initiatorType }) => ['script', 'link'].includes(initiatorType))); // requested by the page itself
  const rate = measured ?? (downlink * 125_000 || null);
  return { rate, isDear: saveData || /2g|3g/.test(effectiveType) || (measured !== null && measured < SLOW) };
}

/**
 * Describe the download that starting Python takes, and its duration, as text that follows Python's name.
 * @param {number | null} rate bytes a second
 */
export function costOfPython(rate) {
  if (!PYTHON_BYTES) return '';
  const seconds = rate ? PYTHON_BYTES / rate : 0;
  return `, ${(PYTHON_BYTES / 1e6).toFixed(1)} MB${seconds >= 2 ? `, about ${Math.round(seconds)} s` : ''}`;
}
