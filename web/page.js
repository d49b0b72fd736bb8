// @ts-check
/**
 * web/pyruntime.js with Python in the page's own thread, where onnxruntime-web is too: a tensor on the GPU is a GPUBuffer
 * of `env.webgpu.device`, for shaders and textures of one's own. Starting Python and planning keep the page busy meanwhile.
 *
 *   import { InferenceSession, Tensor, env } from './web/page.js';
 */

import { env } from './api/env.js';

env.worker = false;

export * from './pyruntime.js';
export { default } from './pyruntime.js';
