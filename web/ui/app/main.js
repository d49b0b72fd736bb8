// @ts-check
import { describeAdapter, isEmulated, readAdapter } from './adapter.js';
import { Digits, loadDigits } from './digits.js';
import { byId, h } from '../dom.js';
import { explain, whyNoWebGpu } from './errors.js';
import { formatBytes, formatTime } from './format.js';
import { Inspector } from './model/inspector.js';
import { listen } from './model/listen.js';
import { PhaseList } from './phases.js';
import { PictureDemo } from './picture/picture.js';
import { whenPython } from './python.js';
import { showSnippets } from './snippets.js';
import { Storage } from './storage.js';
import { startWriting } from './write/start.js';

/**
 * Set one of the figures at the top of the page.
 * @param {string} id
 * @param {string} text
 * @param {string} [detail] shown smaller after it
 */
function read(id, text, detail) {
  const element = byId(id);
  element.replaceChildren(text, ...(detail ? [' ', h('span', { class: 'soft' }, detail)] : []));
  element.classList.remove('pending');
}

async function showAdapter() {
  const reason = await whyNoWebGpu();
  if (reason) {
    read('adapter', 'CPU', 'NumPy');
    byId('notice').replaceChildren(h('p', { class: 'notice' }, reason, ' Until then, models run on the CPU.'));
    return;
  }
  read('adapter', ...describeAdapter(await readAdapter()));
}

async function startDigits() {
  const phases = new PhaseList(byId('phases'), ['Model', 'First inference']);
  const fail = (/** @type {unknown} */ error) => {
    phases.stop();
    byId('loading-title').textContent = 'Stopped';
    byId('answer-sure').textContent = '';
    byId('notice').replaceChildren(explain(error, { title: 'The demo did not start.', next: 'Reload the page to try again.' }));
  };
  const digits = new Digits({ onTime: (ms) => read('inference-time', formatTime(ms), 'median round trip'), onError: fail });
  try {
    const session = await loadDigits((event) => phases.report(event));
    const { memory } = await session.summary();
    if (memory) read('peak-memory', formatBytes(memory.peak), `and ${formatBytes(memory.weights)} of weights`);
    else read('peak-memory', 'none');
    phases.finish();
    byId('loading-title').textContent = 'Loaded';
    byId('answer-sure').textContent = '';
    digits.start(session);
    await digits.answered;
    await painted();
  } catch (error) {
    fail(error);
  }
}

/** Resolve when the page has been painted; immediately in a hidden page. */
function painted() {
  return new Promise((resolve) => {
    if (document.hidden) resolve(undefined);
    else requestAnimationFrame(() => setTimeout(resolve));
  });
}

/** @param {PictureDemo} picture @param {Promise<boolean>} isSoftware */
function startInspector(picture, isSoftware) {
  const storage = new Storage();
  const inspector = new Inspector({ onKept: () => storage.show() });
  listen(inspector, (file) => picture.open(file, file.name), startWriting(() => storage.show(), isSoftware));
  return storage;
}

showSnippets();
const digits = startDigits();
// When the digits are ready: nothing takes their time before.
const isSoftware = digits.then(readAdapter).then((adapter) => !adapter || isEmulated(adapter), () => true);
const storage = startInspector(new PictureDemo(isSoftware), isSoftware);
digits.then(async () => {
  await whenPython(await isSoftware, storage);
  await storage.start();
});
showAdapter().catch(() => read('adapter', 'unknown'));
