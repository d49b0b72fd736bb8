// @ts-check
/**
 * `loadPyodide` for JupyterLite's kernel, a classic worker. It restores Python from the memory snapshot next to this file, in which the
 * kernel's packages are imported. Without a snapshot, or if it does not match, Pyodide starts without one.
 */
'use strict';

{
  const worker = /** @type {any} */ (globalThis);

  /** @param {{indexURL: string, packages?: string[]}} options with packages that are in the snapshot */
  const restored = async ({ packages, ...options }) => {
    const { indexURL } = options;
    const folder = `${indexURL}snapshot/`;
    const { restorePython, snapshotsFit } = await import(`${indexURL}snapshot.js`);
    const python = snapshotsFit() && await restorePython(folder, indexURL, options);
    if (!python) return null;
    // The snapshot has every package of the lock file: imports fetch nothing.
    for (const { name } of Object.values(python.lockfile.packages)) python.loadedPackages[name] = 'default channel';
    return python;
  };

  worker.loadPyodide = async (/** @type {{indexURL: string, packages?: string[]}} */ options) => {
    const python = await restored(options).catch((error) => {
      console.info(`Python starts without its snapshot: ${error.message}`);
      return null;
    });
    if (python) return python;
    worker.importScripts(`${options.indexURL}pyodide.js`);
    return worker.loadPyodide(options);
  };
}
