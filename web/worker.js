// @ts-check
/** The dedicated worker that runs Python. */

import { prefetchSnapshot } from './snapshot/memory.js';

// Imported without awaiting, so that the files that Python starts from are requested in parallel.
const host = import('./worker/host.js').then((module) => {
  module.servePage((port) => self.postMessage({ downloads: port }, { transfer: [port] }));
  return module;
});
host.catch((error) => self.reportError(error));

/**
 * Remove GPUBuffers from a value, as they cannot leave their thread.
 * @param {any} value
 */
function withoutBuffers(value) {
  for (const output of Object.values(value ?? {})) if (output?.kind === 'gpu') delete output.buffer;
}

/** @param {import('./api/protocol.js').Answer} message @param {Transferable[]} transfer */
function post(message, transfer) {
  if ('value' in message) withoutBuffers(message.value);
  self.postMessage(message, { transfer });
}

self.addEventListener('message', ({ data }) => {
  if (data.method === 'start') prefetchSnapshot(data.arguments);
  host.then(({ answer, arrive, downloads }) => {
    if ('stream' in data) arrive(data);
    else if ('downloads' in data) downloads.failed(data.downloads);
    else answer(data, post);
  }, () => {});
});
