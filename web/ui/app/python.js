// @ts-check
/** Starts Python, which runs models without a plan, and shows its state. */

import { preload } from '../../pyruntime.js';
import { connection, costOfPython } from '../connection.js';
import { byId, h } from '../dom.js';
import { formatBytes } from './format.js';

/** Milliseconds of idle time before Python starts automatically. */
const REST_MS = 300;

/**
 * Start Python when the page is idle, or, on a slow or metered connection, on demand. Resolves when Python is ready.
 * @param {boolean} writes whether the page's text needs it
 * @param {import('./storage.js').Storage} storage caches the page meanwhile, and knows whether Python is cached already and takes no
 *   download
 */
export async function whenPython(writes, storage) {
  const what = writes ? 'text and your own models' : 'your own models';
  const place = byId('python-state');
  const { isDear, rate } = connection();
  const say = (/** @type {(string | HTMLElement)[]} */ ...parts) => place.replaceChildren(...parts);
  if (isDear && !await storage.hasPython()) {
    const start = h('button', { type: 'button', class: 'quiet small' }, 'Load it now');
    const needed = new Promise((resolve) => {
      start.addEventListener('click', resolve);
      for (const button of document.querySelectorAll(`${writes ? '#write-go, #write-again, ' : ''}#model-open, [data-model]`)) button.addEventListener('click', resolve);
      for (const id of ['file', 'write-folder']) byId(id).addEventListener('change', resolve);
      window.addEventListener('hashchange', resolve);
      window.addEventListener('drop', ({ dataTransfer }) => {
        if ([...dataTransfer?.files ?? []].some(({ type }) => !type.startsWith('image/'))) resolve(undefined);
      });
    });
    say(`To load for ${what}, when you need it: Python${costOfPython(rate)}. `, start);
    storage.start(); // not awaited: a service worker that cannot be installed is never ready
    await needed;
  } else {
    say(`Next, for ${what}: Python${costOfPython(rate)}.`);
    await new Promise((resolve) => { setTimeout(resolve, REST_MS); });
  }
  const words = h('span', {}, `Loading Python${costOfPython(rate)}`);
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
    say(`Python is ready, for ${what}.`);
  } catch { // the next use of Python reports why
    say('Python did not start.');
  }
}
