// @ts-check
/** Sizes that the build writes into this module (tools/devkit/site.py). */

/** Bytes that the first start of Python downloads, from a server with compression; 0: unknown. */
export const PYTHON_BYTES = 0;
