// @ts-check
/** The page /bench/: choice of measurements, progress, results, and downloads. */
import { byId, h, saveAs } from '../dom.js';
import { explain, whyNoWebGpu } from '../app/errors.js';
import { formatBytes } from '../app/format.js';
import { requestAdapter } from '../../gpu/adapter.js';
import { describe } from './adapter.js';
import { findPeer, hostOf } from './engines.js';
import { measure } from './measurement.js';
import { MODELS } from './models.js';
import { draw } from './picture.js';
import { adapterTable, modelsTable, ratesTable } from './tables.js';
import { gpuOf } from './texts.js';
import { isEmulated } from '../app/adapter.js';

/** Parameters that restrict the measurements: `?models=digits,austen&runs=9&seconds=2`. */
const parameters = new URLSearchParams(location.search);
const RUNS = Number(parameters.get('runs')) || 30;
const SECONDS = Number(parameters.get('seconds')) || 10;

/** @typedef {import('./measurement.js').Result} Result */

/** @param {import('./engines.js').Peer} peer */
function offerPeer(peer) {
  const host = hostOf(peer);
  const size = formatBytes(Object.values(peer.files).reduce((sum, { bytes }) => sum + bytes, 0));
  byId('peer-text').textContent = host
    ? `Compare with onnxruntime-web ${peer.version}: fetches up to ${size} from ${host}, which sees your address`
    : `Compare with onnxruntime-web ${peer.version} (${size}, from this server)`;
  const choice = /** @type {HTMLInputElement} */ (byId('peer'));
  choice.checked = !host;
  byId('peer-choice').hidden = false;
}

/** @param {Result} result */
function show(result) {
  const hasModels = result.models.length > 0;
  byId('rates').replaceChildren(...result.device ? [ratesTable(result)] : []);
  byId('models').replaceChildren(...hasModels ? [modelsTable(result)] : []);
  for (const id of ['rates', 'models']) byId(`${id}-part`).hidden = !byId(id).hasChildNodes();
}

/** @param {Result} result */
function finish(result) {
  byId('result-part').hidden = false;
  const canvas = /** @type {HTMLCanvasElement} */ (byId('picture'));
  draw(canvas, result);
  const name = `${result.date.slice(0, 10)}-${gpuOf(result).toLowerCase().replaceAll(/[^a-z0-9]+/g, '-').replaceAll(/^-|-$/g, '')}`;
  byId('save-json').onclick = () => saveAs(new Blob([`${JSON.stringify(result, null, 1)}\n`], { type: 'application/json' }), `${name}.json`);
  byId('save-picture').onclick = () => canvas.toBlob((blob) => blob && saveAs(blob, `${name}.png`));
}

/** @param {boolean} isRunning */
function setRunning(isRunning) {
  byId('go').hidden = isRunning;
  byId('stop').hidden = !isRunning;
  byId('stop').removeAttribute('disabled');
  byId('progress').hidden = !isRunning;
  byId('doing').replaceChildren();
  byId('doing').hidden = !isRunning;
  byId('peer').toggleAttribute('disabled', isRunning);
}

/** @param {GPUAdapter} adapter @param {import('./engines.js').Peer | null} peer */
async function run(adapter, peer) {
  const controller = new AbortController();
  byId('stop').onclick = () => {
    controller.abort();
    byId('stop').toggleAttribute('disabled', true);
    byId('doing').textContent = 'Stops when this run has ended';
  };
  byId('error').replaceChildren();
  byId('result-part').hidden = true;
  setRunning(true);
  const names = parameters.get('models')?.split(',');
  const models = MODELS.filter(({ name }) => !names || names.includes(name));
  const isCompared = /** @type {HTMLInputElement} */ (byId('peer')).checked;
  try {
    const wanted = { adapter, peer: isCompared ? peer : null, models, effort: { runs: RUNS, seconds: SECONDS } };
    finish(await measure(wanted, controller.signal, (done, of, step, result, doing) => {
      Object.assign(byId('progress'), { value: done, max: of });
      if (!controller.signal.aborted) byId('doing').textContent = doing;
      if (doing) return;
      byId('step').textContent = step ? `${done + 1} of ${of}: ${step}` : 'Measured.';
      show(result);
    }));
  } catch (error) {
    if (controller.signal.aborted) byId('step').textContent = 'Stopped.';
    else {
      byId('step').textContent = '';
      byId('error').replaceChildren(explain(error, { title: 'This was not measured.', next: 'Reload the page to try again.' }));
    }
  } finally {
    setRunning(false);
  }
}

async function start() {
  const reason = await whyNoWebGpu();
  if (reason) {
    byId('gpu').textContent = 'No GPU for this page';
    byId('notice').replaceChildren(h('p', { class: 'notice' }, reason));
    return;
  }
  const adapter = /** @type {GPUAdapter} */ (await requestAdapter());
  const described = describe(adapter);
  const isSoftware = isEmulated(/** @type {any} */ (described.adapter));
  byId('gpu').textContent = gpuOf({ ...described, is_software: isSoftware });
  byId('adapter').replaceChildren(adapterTable(described));
  if (isSoftware) {
    byId('notice').replaceChildren(h('p', { class: 'notice' }, 'This GPU is emulated on the CPU. Its figures say nothing about a real one, and measuring takes ten times as long.'));
  }
  const peer = await findPeer().catch(() => null);
  if (peer) offerPeer(peer);
  byId('go').onclick = () => run(adapter, peer);
  byId('go').removeAttribute('disabled');
}

start().catch((error) => byId('error').replaceChildren(explain(error)));
