// @ts-check
/** The device's memory, as far as the browser reports it: Chromium gives GiB, rounded to a power of two. */

/** Largest value in GiB that browsers report. */
const MOST_GIB = 8;

/** A file is larger than the device's memory. Same name and meaning as Python's class. */
export class OutOfMemory extends Error {
  name = 'OutOfMemory';
}

/** Return the device's memory in bytes; Infinity if unknown. */
export function memoryBytes() {
  const { deviceMemory = MOST_GIB } = /** @type {Navigator & {deviceMemory?: number}} */ (navigator);
  return deviceMemory < MOST_GIB ? deviceMemory * 2 ** 30 : Infinity;
}

/**
 * Throw OutOfMemory before downloading a file that exceeds the device's memory.
 * @param {string} url
 * @param {number} size
 * @param {string} [least] before the size, where the file may have more bytes
 */
export function checkFits(url, size, least = '') {
  const most = memoryBytes();
  if (size <= most) return;
  const bytes = (/** @type {number} */ n) => n.toLocaleString('en');
  throw new OutOfMemory(`${url} has ${least}${bytes(size)} bytes, and the device has ${bytes(most)} bytes of memory: use a smaller model`);
}
