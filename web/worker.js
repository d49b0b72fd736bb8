// @ts-check
/** The dedicated worker that hosts Python. */

import { prefetchSnapshot } from './snapshot/memory.js';

// Imported without waiting, so that the files that Python starts from are requested at the same time.
const host = import('./worker/host.js').then((module) => {
  module.servePage((port) => self.postMessage({ downloads: port }, { transfer: [port] }));
  return module;
});
host.catch((error) => self.reportError(error));

/**
 * A GPUBuffer stays in its thread.
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
