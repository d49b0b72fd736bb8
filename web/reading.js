// @ts-check
/** Streams that are being read. */

/** Chromium's garbage collector takes the stream of a Blob that nobody but its own reads hold: they never end. @type {Set<object>} */
const held = new Set();

/**
 * The reader, which stays until its stream is at its end, cancelled or broken.
 * @template {ReadableStreamDefaultReader<any> | ReadableStreamBYOBReader} R
 * @param {R} reader
 * @returns {R}
 */
export function reading(reader) {
  held.add(reader);
  const over = () => held.delete(reader);
  reader.closed.then(over, over);
  return reader;
}
