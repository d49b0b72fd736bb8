// @ts-check
/** Threads and third-party libraries that are loaded on demand from this folder, addressed in the form that other bundlers recognize. */

/** @returns {Worker} the worker that runs Python */
export function pythonWorker() {
  return new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'pyruntime' });
}

/** @returns {Worker} the worker that downloads for it */
export function downloadWorker() {
  return new Worker(new URL('./downloader.js', import.meta.url), { type: 'module', name: 'pyruntime downloads' });
}

/** Import the host of Python for the caller's thread. */
export function pythonHere() {
  return import('./host.js');
}

/** Import Hugging Face's tokenizers. @returns {Promise<any>} */
export function tokenizers() {
  // @ts-expect-error added by the build
  return import('./vendor/tokenizers.js');
}

/** Import Hugging Face's chat templates. @returns {Promise<any>} */
export function jinja() {
  // @ts-expect-error added by the build
  return import('./vendor/jinja.js');
}
