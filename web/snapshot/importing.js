// @ts-check

/**
 * Import a module by an address that is known when the page runs. Other bundlers leave it alone, by these comments; the build, whose output
 * has no comments, writes this module anew.
 * @param {string} url
 * @returns {Promise<any>}
 */
export function importUrl(url) {
  return import(/* @vite-ignore */ /* webpackIgnore: true */ /* turbopackIgnore: true */ url);
}
