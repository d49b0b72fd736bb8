// @ts-check
import { heldBytes } from '../gpu/held.js';

/** @type {Record<string, string>} */
const KINDS = { weights: 'weights', computed: 'computed', arena: 'activations', params: 'parameters', staging: 'staging', result: 'staging' };

/** What sessions over plans have on a device, in bytes, as `allocated_bytes` of `pyruntime/session/inspect/memory_plan.py`. @param {GPUDevice} device */
export function allocatedBytes(device) {
  const found = { weights: 0, computed: 0, activations: 0, parameters: 0, tensors: 0, staging: 0 };
  for (const [label, nbytes] of Object.entries(heldBytes(device))) found[/** @type {keyof typeof found} */ (KINDS[label] ?? 'tensors')] += nbytes;
  return found;
}
