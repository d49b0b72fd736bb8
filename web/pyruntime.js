// @ts-check
/**
 * ONNX models on the browser's GPU: the JavaScript API, shaped like onnxruntime-web.
 *
 *   import { InferenceSession, Tensor } from './web/pyruntime.js';
 *   const session = await InferenceSession.create('model.onnx');
 *   const { y } = await session.run({ x: new Tensor('float32', data, [1, 3, 224, 224]) });
 */

import { optionsOf } from './api/arguments.js';
import { client } from './api/client.js';
import { env } from './api/env.js';
import { TextGenerator } from './text/on_demand.js';
import { InferenceSession } from './api/session.js';
import { Tensor } from './api/tensor.js';

export { InferenceSession, Tensor, TextGenerator, env };

/**
 * Start Python before the first session needs it.
 * @param {{onProgress?: (event: import('./pyruntime.js').ProgressEvent) => void}} [options]
 */
export async function preload(options) {
  const { onProgress } = optionsOf('options', options);
  await client().call('ready', {}, [], { onProgress });
}

/** Return the GPU adapter of sessions; null if there is none. */
export async function adapterInfo() {
  return client().call('call', { function: 'adapter_info', arguments: [] });
}

/** Return the supported operators by domain ('' is ai.onnx). @returns {Promise<Record<string, string[]>>} */
export async function operators() {
  return client().call('call', { function: 'operators', arguments: [] });
}

/** @typedef {typeof import('./pyruntime.js').default} Declared */
/** @typedef {'InferenceSession' | 'TextGenerator'} Created classes that are made by `create` alone */

export default /** @satisfies {Omit<Declared, Created> & Record<Created, unknown>} */ ({
  InferenceSession, Tensor, TextGenerator, adapterInfo, env, operators, preload,
});
