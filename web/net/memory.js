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

/** Refuse a file that the device has no memory for, before it is downloaded. @param {string} url @param {number | undefined} size */
export function checkFits(url, size = 0) {
  const most = memoryBytes();
  if (size <= most) return;
  const bytes = (/** @type {number} */ n) => n.toLocaleString('en');
  throw new OutOfMemory(`${url} has ${bytes(size)} bytes, and the device has ${bytes(most)} bytes of memory: use a smaller model`);
}
