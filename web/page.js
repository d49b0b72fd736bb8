// @ts-check
/**
 * web/pyruntime.js with Python in the page's thread, like onnxruntime-web: a tensor on the GPU is a GPUBuffer of `env.webgpu.device`, for
 * custom shaders and textures. Starting Python and planning block the page meanwhile.
 *
 *   import { InferenceSession, Tensor, env } from './web/page.js';
 */

import { env } from './pyruntime.js';

env.worker = false;

export * from './pyruntime.js';
export { default } from './pyruntime.js';
