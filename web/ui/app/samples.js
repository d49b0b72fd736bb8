// @ts-check
import { onThemeChange } from '../draw/canvas.js';
import { SIZE, fromCounts } from '../draw/raster.js';
import { byId, h } from '../dom.js';

/** @typedef {{index: number, label: number, image: Float32Array}} Sample */

/**
 * Create ten buttons, one for each digit, with the picture of the test image that it loads; each press shows the next one.
 * @param {URL} directory folder of `digits_heldout.json` and `.bin`
 * @param {(sample: Sample, count: number) => void} choose
 */
export async function makeSampleButtons(directory, choose) {
  const [about, bytes] = await Promise.all([
    fetch(new URL('digits_heldout.json', directory)).then((response) => response.json()),
    fetch(new URL('digits_heldout.bin', directory)).then((response) => response.arrayBuffer()),
  ]);
  const cells = SIZE * SIZE / 4;
  const sample = (/** @type {number} */ index) => ({
    index, label: about.labels[index], image: fromCounts(new Uint8Array(bytes, index * cells, cells)) });
  for (let digit = 0; digit < 10; digit++) {
    const indices = [...about.labels.keys()].filter((index) => about.labels[index] === digit);
    const picture = h('canvas', { width: SIZE, height: SIZE, 'aria-hidden': 'true' });
    let next = 0;
    const repaint = () => paint(picture, sample(indices[next]).image);
    repaint();
    onThemeChange(repaint);
    const button = h('button', { type: 'button', class: 'sample', 'aria-label': `Test image of a ${digit}`, on: {
      click() {
        choose(sample(indices[next]), about.count);
        next = (next + 1) % indices.length;
        repaint();
      },
    } }, picture);
    byId('samples').append(button);
  }
}

/**
 * Draw a model input in the page's ink color on a transparent background.
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array} image
 */
export function paint(canvas, image) {
  canvas.width = canvas.height = SIZE;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  const pixels = context.createImageData(SIZE, SIZE);
  image.forEach((ink, i) => pixels.data.set([128, 128, 128, Math.round(ink * 255)], i * 4));
  context.putImageData(pixels, 0, 0);
  context.globalCompositeOperation = 'source-in';
  context.fillStyle = getComputedStyle(byId('pad')).color;
  context.fillRect(0, 0, SIZE, SIZE);
}
