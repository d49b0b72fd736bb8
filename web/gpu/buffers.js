// @ts-check
/** GPU buffers for tensors, weights and parameters. */

import { told } from './staging.js';

/**
 * A buffer for storage, parameters and copies, in the error scopes that are open.
 * @param {GPUDevice} device
 * @param {number} size
 * @param {string} [label]
 */
export function bufferOf(device, size, label = '') {
  const { STORAGE, COPY_SRC, COPY_DST, UNIFORM } = GPUBufferUsage;
  return device.createBuffer({ label, size, usage: STORAGE | COPY_SRC | COPY_DST | UNIFORM });
}

/**
 * Buffers of these sizes; none is left where one cannot be made.
 * @param {GPUDevice} device
 * @param {number[]} sizes
 * @param {string} label
 * @returns {{buffers: GPUBuffer[], refused: Promise<string>}} `refused`: why they are of no use; '' where they are
 */
export function allocate(device, sizes, label) {
  /** @type {GPUErrorFilter[]} */
  const kinds = ['validation', 'out-of-memory'];
  for (const kind of kinds) device.pushErrorScope(kind);
  /** @type {GPUBuffer[]} */
  const buffers = [];
  let refused = Promise.resolve('');
  try {
    for (const size of sizes) buffers.push(bufferOf(device, size, label));
  } catch (error) {
    for (const buffer of buffers) buffer.destroy();
    throw error;
  } finally {
    const scopes = kinds.map(() => device.popErrorScope());
    refused = Promise.all(scopes).then((errors) => told(errors.find(Boolean)));
    refused.catch(() => {}); // a lost device rejects them; the caller that awaits them reports it
  }
  return { buffers, refused };
}
