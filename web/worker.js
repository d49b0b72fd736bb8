// @ts-check
/** The dedicated worker that hosts Python. */

import { answer, arrive } from './host.js';

/**
 * A GPUBuffer stays in its thread.
 * @param {any} value
 */
function withoutBuffers(value) {
  for (const output of Object.values(value ?? {})) if (output?.kind === 'gpu') delete output.buffer;
}

self.addEventListener('message', ({ data }) => {
  if ('stream' in data) {
    arrive(data);
    return;
  }
  answer(data, (message, transfer) => {
    if ('value' in message) withoutBuffers(message.value);
    self.postMessage(message, { transfer });
  });
});
