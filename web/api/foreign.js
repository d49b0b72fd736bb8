// @ts-check
/** Convert tensors of another copy of onnxruntime's JavaScript API, as bundles carry one. */

import { Tensor } from './tensor.js';

/**
 * @param {any} value
 * @returns {boolean} whether it says of itself what a tensor says
 */
function looksLikeTensor(value) {
  return typeof value?.type === 'string' && Array.isArray(value.dims);
}

/**
 * A Tensor for anything with `type`, `dims` and `data` (or `gpuBuffer`), also within an array; other values as they are.
 * @param {any} value
 * @returns {any}
 */
export function asTensor(value) {
  if (value instanceof Tensor || value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.some(looksLikeTensor) ? value.map(asTensor) : value;
  if (!looksLikeTensor(value)) return value;
  const { type, dims } = value;
  if (value.location === 'gpu-buffer') return Tensor.fromGpuBuffer(value.gpuBuffer, { dataType: type, dims });
  return value.data ? new Tensor(type, value.data, dims) : value;
}

/** Whether `value` is a tensor, of whosever class. @param {unknown} value */
export function isTensor(value) {
  return value instanceof Tensor || looksLikeTensor(value);
}
