// @ts-check
/** The result as a picture that is legible on a phone. */
import { bandwidthText, browserOf, gpuOf, productText, timeText } from './texts.js';

const WIDTH = 1080;
const MARGIN = 60;
const ROW = 108;
/** Places of memory, products, dispatch and readback, and the end of the last. */
const FACTS = [0, 225, 505, 730, WIDTH - 2 * MARGIN];
/** Width of models' titles, and of the longest bar. */
const [TITLES, BAR] = [300, 380];

/** Return the current colors of the page. @param {HTMLElement} element */
function colours(element) {
  const style = getComputedStyle(element);
  return (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
}

/** Return the text, truncated to a width. @param {CanvasRenderingContext2D} context @param {string} text @param {number} width */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return `${text.slice(0, end)}…`;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import('./measurement.js').Result} result
 */
export function draw(canvas, result) {
  const colour = colours(canvas);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  const { models, device } = result;
  const hasPeer = Boolean(result.engines.onnxruntime_web);
  canvas.width = WIDTH;
  canvas.height = 560 + models.length * ROW + (hasPeer ? 60 : 0);
  context.fillStyle = colour('panel');
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.textBaseline = 'alphabetic';

  const write = (/** @type {string} */ text, /** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ size,
    { ink = 'ink', weight = 400, end = false, width = WIDTH - 2 * MARGIN } = {}) => {
    context.font = `${weight} ${size}px system-ui, sans-serif`;
    context.fillStyle = colour(ink);
    context.textAlign = end ? 'end' : 'start';
    context.fillText(fitted(context, text, width), x, y);
  };

  write(gpuOf(result), MARGIN, 106, 52, { weight: 650 });
  write(browserOf(result), MARGIN, 158, 32, { ink: 'ink-soft' });
  const facts = [
    ['Memory', device ? bandwidthText(device) : '–'], ['Products', productText(result.products.pyruntime)],
    ['Dispatch', device ? timeText(device.dispatch_us / 1000) : '–'], ['Readback', device ? timeText(device.readback_ms) : '–'],
  ];
  facts.forEach(([name, value], i) => {
    const x = MARGIN + FACTS[i];
    write(name, x, 236, 28, { ink: 'ink-soft' });
    write(value, x, 282, 29, { weight: 600, width: FACTS[i + 1] - FACTS[i] - 20 });
  });
  write('One run, median', MARGIN, 370, 34, { weight: 600 });
  if (hasPeer) write('ratio', WIDTH - MARGIN, 370, 28, { ink: 'ink-soft', end: true });
  const medians = (/** @type {typeof models[number]} */ { engines }) => (
    Object.values(engines).map((found) => ('error' in found ? 0 : found.median_ms)));
  models.forEach((model, i) => {
    const { title, engines, ratio } = model;
    const longest = Math.max(...hasPeer ? medians(model) : models.flatMap(medians), 1e-9);
    const y = 400 + i * ROW;
    write(title, MARGIN, y + 44, 32, { width: TITLES - 20 });
    Object.entries({ pyruntime: 'accent', onnxruntime_web: 'bar' }).forEach(([engine, ink], place) => {
      const found = engines[engine];
      if (!found) return;
      const top = y + 6 + place * 44;
      const length = 'error' in found ? 0 : Math.max(4, BAR * found.median_ms / longest);
      context.fillStyle = colour(ink);
      context.fillRect(MARGIN + TITLES, top, length, 34);
      write('error' in found ? 'does not run' : timeText(found.median_ms), MARGIN + TITLES + 12 + length, top + 27, 28, { ink: 'ink-soft', width: 170 });
    });
    if (ratio) write(`${ratio.toPrecision(2)}×`, WIDTH - MARGIN, y + 50, 38, { weight: 650, end: true });
  });
  const below = 430 + models.length * ROW;
  if (hasPeer) {
    context.fillStyle = colour('accent');
    context.fillRect(MARGIN, below, 28, 28);
    write('pyruntime', MARGIN + 44, below + 25, 28);
    context.fillStyle = colour('bar');
    context.fillRect(MARGIN + TITLES, below, 28, 28);
    write(`onnxruntime-web ${result.engines.onnxruntime_web.version}`, MARGIN + TITLES + 44, below + 25, 28);
  }
  write(`pyruntime ${result.engines.pyruntime?.version ?? ''}, ${result.date.slice(0, 10)}`, MARGIN, canvas.height - 50, 28, { ink: 'ink-soft' });
}
