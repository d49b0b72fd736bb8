// @ts-check
/** What memory the device has, as far as the browser says: Chromium gives GiB, rounded to a power of two. */

/** Of this many GiB and more, browsers give no more than this. */
const MOST_GIB = 8;

/** A file is larger than the memory of the device. Python's class of that name means the same. */
export class OutOfMemory extends Error {
  name = 'OutOfMemory';
}

/** Bytes of memory; Infinity where that is not known. */
export function memoryBytes() {
  const { deviceMemory = MOST_GIB } = /** @type {Navigator & {deviceMemory?: number}} */ (navigator);
  return deviceMemory < MOST_GIB ? deviceMemory * 2 ** 30 : Infinity;
}

/**
 * Refuse a file that the device has no memory for, as soon as that is known.
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
