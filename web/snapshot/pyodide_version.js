// @ts-check
/** Of the site's Pyodide; the build writes it anew where tools/devkit/pins.py chooses another one. */
export const pyodideVersion = '0.29.5';
