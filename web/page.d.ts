/** web/pyruntime.js with Python in the page's own thread. */
export * from './pyruntime.js';
export { default } from './pyruntime.js';
