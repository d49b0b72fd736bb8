// @ts-check
/** What is loaded on demand from this folder, addressed as other bundlers look for it: threads, and the libraries of others. */

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

/** Hugging Face's tokenizers. @returns {Promise<any>} */
export function tokenizers() {
  // @ts-expect-error the build brings it
  return import('./vendor/tokenizers.js');
}

/** Hugging Face's chat templates. @returns {Promise<any>} */
export function jinja() {
  // @ts-expect-error the build brings it
  return import('./vendor/jinja.js');
}
