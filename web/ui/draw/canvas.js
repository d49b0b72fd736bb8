// @ts-check
/** Resize a canvas to its layout size in device pixels; return its context, whose units are CSS pixels.
 *
 * @param {HTMLCanvasElement} canvas
 * @returns {CanvasRenderingContext2D}
 */
export function sharpContext(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return context;
}

/** Return whether the visitor prefers reduced motion. */
export function prefersStillness() {
  return window.matchMedia('(prefers-reduced-motion: reduce)').matches;
}

/** @param {() => void} listener called when the system changes between light and dark */
export function onThemeChange(listener) {
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', listener);
}
