// @ts-check
/** The files that Python starts from, by their paths in the site. */

/**
 * Their addresses; none in the sources, where all are below SITE. The build writes this module anew, with each address in the form in which
 * other bundlers find files to take along.
 * @type {Record<string, string>}
 */
export const FILES = {};
