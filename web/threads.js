// @ts-check
/** The threads that begin with a module of this folder, addressed as other bundlers look for them. */

/** @returns {Worker} the worker that hosts Python */
export function pythonWorker() {
  return new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'pyruntime' });
}

/** @returns {Worker} the worker that downloads for it */
export function downloadWorker() {
  return new Worker(new URL('./downloader.js', import.meta.url), { type: 'module', name: 'pyruntime downloads' });
}

/** What hosts Python in the caller's thread. */
export function pythonHere() {
  return import('./host.js');
}
