// @ts-check
import { adapterInfo } from '../pyruntime.js';
import { DIGITS_MODEL, Digits, loadDigits } from './digits.js';
import { byId, h } from './dom.js';
import { explain, whyNoWebGpu } from './errors.js';
import { formatBytes, formatTime } from './format.js';
import { Inspector, listenForModels } from './inspector.js';
import { PhaseList } from './phases.js';
import { showSnippets } from './snippets.js';

/** Adapters that are no hardware. */
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|basic render/i;

/**
 * Sets one of the readings.
 *
 * @param {string} id
 * @param {string} text
 * @param {string} [detail] set smaller, after it
 */
function read(id, text, detail) {
  const element = byId(id);
  element.replaceChildren(text, ...(detail ? [' ', h('span', { class: 'soft' }, detail)] : []));
  element.classList.remove('pending');
}

/**
 * The adapter's name, and the rest of what the browser tells about it.
 *
 * @param {Awaited<ReturnType<typeof adapterInfo>>} adapter
 * @returns {[string, string]}
 */
function describeAdapter(adapter) {
  if (!adapter) return ['CPU', 'NumPy'];
  const { vendor, architecture, description } = adapter;
  const maker = [vendor, architecture].filter(Boolean).join(' ');
  const how = SOFTWARE.test(`${maker} ${description}`) ? 'WebGPU, emulated on the CPU' : 'WebGPU';
  return description ? [description, `${how}, ${maker}`] : [maker || 'GPU', how];
}

async function showAdapter() {
  const reason = await whyNoWebGpu();
  if (reason) {
    read('adapter', 'CPU', 'NumPy');
    byId('notice').replaceChildren(h('p', { class: 'notice' }, reason, ' Until then, models run on the CPU.'));
    return;
  }
  read('adapter', ...describeAdapter(await adapterInfo()));
}

async function startDigits() {
  const phases = new PhaseList(byId('phases'), true);
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
    digits.start(session);
  } catch (error) {
    fail(error);
  }
}

function startInspector() {
  const inspector = new Inspector();
  listenForModels((source) => inspector.open(source));
  byId('try-digits').addEventListener('click', () => inspector.open({ name: 'digits.onnx', data: DIGITS_MODEL }));
  const named = new URLSearchParams(window.location.search).get('url');
  if (!named) return;
  byId('model').scrollIntoView();
  const url = URL.canParse(named, document.baseURI) ? new URL(named, document.baseURI) : null;
  if (url?.origin === window.location.origin) {
    inspector.open({ name: url.pathname.split('/').pop() || url.href, data: url });
    return;
  }
  byId('model-error').replaceChildren(explain(new RangeError(`?url=${named}`), {
    title: 'This page fetches models only from its own site.',
    next: 'Download the model and drop it here, or use a path on this site, such as ?url=models/digits.onnx.',
  }));
}

showSnippets();
startDigits();
startInspector();
showAdapter().catch(() => read('adapter', 'unknown'));
