// @ts-check
/** Validate arguments: an error names the argument, what it must be and what it is. */

/** Describe a value for an error message. @param {unknown} value */
export function described(value) {
  if (value === null || value === undefined) return String(value);
  if (typeof value === 'string') return `'${value.slice(0, 40)}'`;
  if (typeof value === 'object') return `an ${Array.isArray(value) ? 'array' : `object (${value.constructor?.name})`}`;
  return typeof value === 'function' ? 'a function' : String(value);
}

/** @param {string} name @param {string} expected @param {unknown} value @returns {TypeError} */
export function wrong(name, expected, value) {
  return new TypeError(`${name} must be ${expected}, not ${described(value)}`);
}

/**
 * Validate an options object, which may be undefined or null.
 * @template {object} T
 * @param {string} name
 * @param {T | null | undefined} given
 * @returns {T}
 */
export function optionsOf(name, given) {
  if (given === undefined || given === null) return /** @type {T} */ ({});
  if (typeof given !== 'object' || Array.isArray(given)) throw wrong(name, 'an object', given);
  const { signal, onProgress } = /** @type {any} */ (given);
  if (signal !== undefined && signal !== null && !(signal instanceof AbortSignal)) throw wrong(`${name}.signal`, 'an AbortSignal', signal);
  if (onProgress !== undefined && onProgress !== null && typeof onProgress !== 'function') throw wrong(`${name}.onProgress`, 'a function', onProgress);
  return given;
}

/**
 * @template T
 * @param {string} name
 * @param {T} value
 * @returns {T}
 */
export function requireArray(name, value) {
  const isList = Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
  if (!isList) throw wrong(name, 'an array', value);
  return value;
}

/** @param {string} name @param {unknown} value */
export function requireText(name, value) {
  if (typeof value !== 'string') throw wrong(name, 'a string', value);
}
