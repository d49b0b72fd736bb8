// @ts-check
/**
 * The functions that Python's device calls (`pyruntime/device/webgpu/pyodide.py`); the wheel carries these modules, too.
 */

export { allocate, bufferOf } from './buffers.js';
export { activity, play } from './player.js';
export { destroy } from './long_runs.js';
export { compileWithFallback, compileSoon, ready, whenOptimized } from './fallback.js';
export { bind, described, record } from './recording.js';
export { totalHeldBytes } from './pool.js';
export { upload, uploadNow } from './staging.js';
export { memoryBytes } from '../net/memory.js';
export { fetchAll } from '../net/stream.js';
export { timed } from './timing.js';
