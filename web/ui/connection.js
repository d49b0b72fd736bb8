// @ts-check
/** What the connection is like, and what starting Python costs on it. */

import { PYTHON_BYTES } from '../sizes.js';

/** Bytes a second below which Python starts when it is needed alone: what it fetches would take half a minute. */
const SLOW = 400_000;

/** Bytes of a file that says how fast the connection is: shorter ones come in one piece. */
const LONG = 1 << 16;

/**
 * Bytes a second by which files came, the fastest of them or all together; null where none was long enough, or from a network.
 * @param {PerformanceResourceTiming[]} entries of files that were requested together
 */
function rateOf(entries) {
  const sent = entries.filter(({ transferSize }) => transferSize > LONG);
  if (!sent.length) return null;
  const rates = sent.map(({ transferSize, responseStart, responseEnd }) => transferSize / (responseEnd - responseStart));
  const [begin, end] = [Math.min(...sent.map(({ responseStart }) => responseStart)), Math.max(...sent.map(({ responseEnd }) => responseEnd))];
  const together = sent.reduce((sum, { transferSize }) => sum + transferSize, 0) / (end - begin);
  return 1000 * Math.max(together, ...rates);
}

/** Bytes a second, where known, and whether the visitor's connection is slow or metered: browsers' `downlink` is an estimate, good for words alone. */
export function connection() {
  const { saveData = false, effectiveType = '', downlink = 0 } = /** @type {any} */ (navigator).connection ?? {};
  const files = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType('resource'));
  const measured = rateOf(files.filter(({ initiatorType }) => ['script', 'link'].includes(initiatorType))); // named by the page
  const rate = measured ?? (downlink * 125_000 || null);
  return { rate, isDear: saveData || /2g|3g/.test(effectiveType) || (measured !== null && measured < SLOW) };
}

/** What starting Python fetches, and how long that takes, in words that follow its name. @param {number | null} rate bytes a second */
export function costOfPython(rate) {
  if (!PYTHON_BYTES) return '';
  const seconds = rate ? PYTHON_BYTES / rate : 0;
  return `, ${(PYTHON_BYTES / 1e6).toFixed(1)} MB${seconds >= 2 ? `, about ${Math.round(seconds)} s` : ''}`;
}
