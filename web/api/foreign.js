// @ts-check
/** Convert tensors of another copy of onnxruntime's JavaScript API, such as one in a bundle. */

import { Tensor } from './tensor.js';

/**
 * Return whether an object has the fields of a tensor.
 * @param {any} value
 * @returns {boolean}
 */
function looksLikeTensor(value) {
  return typeof value?.type === 'string' && Array.isArray(value.dims);
}

/**
 * Return a Tensor for an object with `type`, `dims` and `data` (or `gpuBuffer`), also inside an array; other values unchanged.
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

/** Return whether `value` is a tensor, of this class or another one. @param {unknown} value */
export function isTensor(value) {
  return value instanceof Tensor || looksLikeTensor(value);
}
