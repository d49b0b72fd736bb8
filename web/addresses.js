// @ts-check
/** Where the site's files are. The build bundles this module into files of this same folder, so the addresses hold there, too. */

const here = import.meta.url;

/** The folder of this module. */
export const WEB = new URL('.', here).href;

/** The site's folder: that of `web/`, `pyodide/` and `integrity.json`. */
export const SITE = new URL('..', here).href;
