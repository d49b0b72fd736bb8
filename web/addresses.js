// @ts-check
/** Addresses of the site's files. The build bundles this module into files of the same folder, so the addresses stay valid. */

const [here] = import.meta.url.split(/[?#]/);

/** The folder of this module. `new URL` is avoided, as Next.js's bundler would look for the folder. */
export const WEB = here.slice(0, here.lastIndexOf('/') + 1);

/** The site's folder: that of `web/`, `pyodide/` and `integrity.json`. */
export const SITE = WEB.slice(0, WEB.lastIndexOf('/', WEB.length - 2) + 1);
