/** web/pyruntime.js, for transformers.js that is imported after this. */
export * from './pyruntime.js';
export { default } from './pyruntime.js';
