// @ts-check
/**
 * For transformers.js: importing this before it makes pyruntime its ONNX runtime, even if it bundles another one, as files from content
 * delivery networks do.
 *
 *   import './web/transformers.js';
 *   const { pipeline } = await import('https://…/transformers.min.js');
 */

import * as runtime from './pyruntime.js';

Object.assign(globalThis, { [Symbol.for('onnxruntime')]: runtime });

export * from './pyruntime.js';
export { default } from './pyruntime.js';
