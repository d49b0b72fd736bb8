// @ts-check
/** Python, which runs models that have no plan: when this page starts it, and what it says of that. */

import { preload } from '../../pyruntime.js';
import { PYTHON_BYTES } from '../../sizes.js';
import { byId, h } from '../dom.js';
import { formatBytes } from './format.js';

/** Bytes a second below which Python starts when it is needed alone: what it fetches would take half a minute. */
const SLOW = 400_000;

/** Milliseconds that the page rests before Python starts by itself. */
const REST_MS = 300;

/**
 * Bytes a second by which files came that were requested together; null where too few came to say, or from a cache.
 * @param {Pick<PerformanceResourceTiming, 'transferSize' | 'responseStart' | 'responseEnd'>[]} entries
 */
export function rateOf(entries) {
  const sent = entries.filter(({ transferSize }) => transferSize > 0);
  const bytes = sent.reduce((sum, { transferSize }) => sum + transferSize, 0);
  if (bytes < 1 << 16) return null;
  const [begin, end] = [Math.min(...sent.map(({ responseStart }) => responseStart)), Math.max(...sent.map(({ responseEnd }) => responseEnd))];
  return end > begin ? (1000 * bytes) / (end - begin) : null;
}

/** What the browser and the arrival of the page's files say of the connection. */
function connection() {
  const { saveData = false, effectiveType = '' } = /** @type {any} */ (navigator).connection ?? {};
  const files = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType('resource'));
  const rate = rateOf(files.filter(({ initiatorType }) => ['script', 'link'].includes(initiatorType))); // named by the page
  return { isDear: saveData || /2g|3g/.test(effectiveType) || (rate !== null && rate < SLOW), rate };
}

/** What starting Python fetches, and how long that takes. @param {number | null} rate bytes a second */
function announced(rate) {
  if (!PYTHON_BYTES) return '';
  const seconds = rate ? PYTHON_BYTES / rate : 0;
  return `, ${formatBytes(PYTHON_BYTES)}${seconds >= 2 ? `, about ${Math.round(seconds)} s` : ''}`;
}

/**
 * Start Python when the page rests, or, on a slow or metered connection, when something needs it. Resolve when it is ready.
 * @param {() => Promise<void>} onWaiting is called where it waits to be needed
 */
export async function whenPython(onWaiting) {
  const place = byId('python-state');
  const { isDear, rate } = connection();
  const say = (/** @type {(string | HTMLElement)[]} */ ...parts) => place.replaceChildren(...parts);
  if (isDear) {
    const start = h('button', { type: 'button', class: 'quiet small' }, 'Load it now');
    const needed = new Promise((resolve) => {
      start.addEventListener('click', resolve);
      for (const id of ['write-go', 'write-again', 'try-digits']) byId(id).addEventListener('click', resolve);
      for (const id of ['file', 'write-folder']) byId(id).addEventListener('change', resolve);
      window.addEventListener('hashchange', resolve);
      window.addEventListener('drop', ({ dataTransfer }) => {
        if ([...dataTransfer?.files ?? []].some(({ type }) => !type.startsWith('image/'))) resolve(undefined);
      });
    });
    say(`To load for text and your own models, when you need it: Python${announced(rate)}. `, start);
    await onWaiting();
    await needed;
  } else {
    say(`Next, for text and your own models: Python${announced(rate)}.`);
    await new Promise((resolve) => { setTimeout(resolve, REST_MS); });
  }
  const words = h('span', {}, `Loading Python${announced(rate)}`);
  const bar = h('progress', { max: 1, 'aria-label': 'Loading Python' });
  say(words, bar);
  try {
    await preload({ onProgress: ({ phase, loaded, total }) => {
      if (phase === 'import') words.textContent = 'Starting Python';
      if (phase !== 'pyodide' || loaded === undefined) return;
      if (total) bar.value = Math.min(1, loaded / total);
      words.textContent = `Loading Python: ${formatBytes(Math.min(loaded, total ?? loaded))}${
        total ? ` of ${formatBytes(total)}` : ''}`;
    } });
    say('Python is ready, for text and your own models.');
  } catch { // the next use of Python reports why
    say('Python did not start.');
  }
}
