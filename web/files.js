// @ts-check
/** The files that Python starts from, by path in the site. */

/**
 * Addresses of these files; empty in the sources, where all are below SITE. The build generates this module, with addresses in the form
 * that other bundlers recognize as files to include.
 * @type {Record<string, string>}
 */
export const FILES = {};
