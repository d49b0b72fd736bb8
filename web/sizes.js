// @ts-check
/** Sizes that the build knows; it replaces this module (tools/devkit/site.py). */

/** Bytes that the first start of Python fetches, from a server that compresses; 0: not known. */
export const PYTHON_BYTES = 0;
