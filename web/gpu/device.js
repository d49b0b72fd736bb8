// @ts-check
/** What Python's device calls (`pyruntime/device/webgpu/pyodide.py`); its wheel carries these modules for pages that do not. */

export { allocate, bufferOf } from './buffers.js';
export { activity, play } from './player.js';
export { compileFallback, compileSoon, ready, settled } from './fallback.js';
export { bind, described, record } from './recording.js';
export { prepareUpload, upload, uploadNow } from './staging.js';
export { fetchAll } from '../net/stream.js';
export { timed } from './timing.js';
