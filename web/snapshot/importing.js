// @ts-check

/**
 * Import a module by an address that is computed at run time. The comments make other bundlers leave the import unchanged; the build,
 * whose output has no comments, replaces this module.
 * @param {string} url
 * @returns {Promise<any>}
 */
export function importUrl(url) {
  return import(/* @vite-ignore */ /* webpackIgnore: true */ /* turbopackIgnore: true */ url);
}
