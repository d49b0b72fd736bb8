/** web/pyruntime.js, which transformers.js finds when it is imported after this. */
export * from './pyruntime.js';
export { default } from './pyruntime.js';
