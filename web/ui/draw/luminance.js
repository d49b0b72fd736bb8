// @ts-check
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
