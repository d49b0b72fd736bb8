// @ts-check
/** How tensors hold pictures. */

/**
 * Where channels are in a picture's shape; null where it is none.
 * @param {readonly (number | string)[]} shape
 * @returns {{layout: 'NCHW' | 'NHWC', channels: number} | null}
 */
export function pictureLayout(shape) {
  if (shape.length !== 4) return null;
  const fits = (/** @type {number | string} */ n) => n === 1 || n === 3 || n === 4;
  if (fits(shape[1])) return { layout: 'NCHW', channels: Number(shape[1]) };
  return fits(shape[3]) ? { layout: 'NHWC', channels: Number(shape[3]) } : null;
}

/** Luminance of three channels (ITU-R BT.601). @param {Float32Array | Uint8Array} rgb @param {string} layout */
export function luminance(rgb, layout) {
  const size = rgb.length / 3;
  const [pixelStep, channelStep] = layout === 'NHWC' ? [3, 1] : [1, size];
  const made = rgb.slice(0, size);
  for (let i = 0; i < size; i++) {
    const at = i * pixelStep;
    made[i] = 0.299 * rgb[at] + 0.587 * rgb[at + channelStep] + 0.114 * rgb[at + 2 * channelStep];
  }
  return made;
}
