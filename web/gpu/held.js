// @ts-check
/** Count the buffers that JavaScript makes for itself. Python counts those that it allocates (`Ledger` of `pyruntime/device/base.py`). */

/** Bytes by label. @type {WeakMap<GPUDevice, Record<string, number>>} */
const counts = new WeakMap();

/** Bytes of the buffers of a device that are held, by label. @param {GPUDevice} device */
export function heldBytes(device) {
  const found = counts.get(device) ?? {};
  counts.set(device, found);
  return found;
}

/** Count a buffer under its label until `drop`; return it. @param {GPUDevice} device @param {GPUBuffer} buffer */
export function hold(device, buffer) {
  const found = heldBytes(device);
  found[buffer.label] = (found[buffer.label] ?? 0) + buffer.size;
  return buffer;
}

/** Destroy a buffer of `hold`, once. @param {GPUDevice} device @param {GPUBuffer} buffer */
export function drop(device, buffer) {
  heldBytes(device)[buffer.label] -= buffer.size;
  buffer.destroy();
}
