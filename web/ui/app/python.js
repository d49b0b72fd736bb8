// @ts-check
/** Python, which runs models that have no plan: when this page starts it, and what it says of that. */

import { preload } from '../../pyruntime.js';
import { connection, costOfPython } from '../connection.js';
import { byId, h } from '../dom.js';
import { formatBytes } from './format.js';

/** Milliseconds that the page rests before Python starts by itself. */
const REST_MS = 300;

/**
 * Start Python when the page rests, or, on a slow or metered connection, when something needs it. Resolve when it is ready.
 * @param {boolean} writes whether the page's text needs it
 * @param {import('./storage.js').Storage} storage keeps the page meanwhile, and says whether Python is kept: then it costs nothing
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
    storage.start(); // not awaited: where a service worker cannot be installed, it is never ready
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
