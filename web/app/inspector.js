// @ts-check
import { InferenceSession } from '../pyruntime.js';
import { byId, h } from './dom.js';
import { explain } from './errors.js';
import { formatBytes, median } from './format.js';
import { PhaseList } from './phases.js';
import { randomTensor, symbolicDimensions } from './random_input.js';
import { Report } from './report.js';

const REPEAT_MS = 1000;
const REPEATS = 20;
const SLOW_MS = 5000;

/** @typedef {{name: string, data: Blob | URL, external?: {path: string, data: Blob}[]}} Source */

/** Opens a model, says what is in it, runs it. One model at a time; a later one takes an earlier one's place. */
export class Inspector {
  constructor() {
    this.error = byId('model-error');
    this.place = byId('report');
    this.progress = byId('model-progress');
    this.turn = 0;
    /** @type {InferenceSession | null} */
    this.session = null;
  }

  /** @param {Source} source */
  async open(source) {
    const turn = ++this.turn;
    this.error.replaceChildren();
    this.place.replaceChildren();
    const list = h('ol', { class: 'phases' });
    const phases = new PhaseList(list);
    const size = source.data instanceof Blob ? `, ${formatBytes(source.data.size)}` : '';
    this.progress.replaceChildren(h('span', {}, `Opening ${source.name}${size}`), list);
    this.progress.hidden = false;
    try {
      await this.session?.release();
      const session = await InferenceSession.create(source.data, {
        externalData: source.external ?? [],
        onProgress: (event) => { if (turn === this.turn) phases.report(event); },
      });
      if (turn !== this.turn) {
        await session.release();
        return;
      }
      this.session = session;
      this.progress.hidden = true;
      await this.#present(source, session, turn);
    } catch (error) {
      if (turn === this.turn) this.#fail(error);
    } finally {
      if (turn === this.turn) this.progress.hidden = true;
    }
  }

  /**
   * @param {Source} source
   * @param {InferenceSession} session
   * @param {number} turn
   */
  async #present(source, session, turn) {
    const size = source.data instanceof Blob ? source.data.size : null;
    const symbols = symbolicDimensions(session.inputMetadata);
    const report = new Report({ name: source.name, size, session, symbols });
    report.form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (session === this.session) this.#run(session, report);
    });
    report.showSummary(await session.summary());
    if (turn !== this.turn) return;
    this.place.replaceChildren(report.element);
    await this.#run(session, report);
  }

  /**
   * Runs the model on random input: once for the first time, then for up to a second for the median.
   *
   * @param {InferenceSession} session
   * @param {Report} report
   */
  async #run(session, report) {
    this.error.replaceChildren();
    report.setBusy(true);
    try {
      const sizes = report.sizes();
      const feeds = Object.fromEntries(session.inputMetadata.map((input) => [input.name, randomTensor(input, sizes)]));
      const begin = performance.now();
      const outputs = await session.run(feeds);
      const firstMs = performance.now() - begin;
      report.showOutputs(outputs);
      report.showTimes({ firstMs, medianMs: null, runs: 1 });
      report.showSummary(await session.summary());
      const times = [];
      const repeatFrom = performance.now();
      const fewest = firstMs < SLOW_MS ? 3 : 1;
      while (times.length < REPEATS && (performance.now() - repeatFrom < REPEAT_MS || times.length < fewest)) {
        const start = performance.now();
        await session.run(feeds);
        times.push(performance.now() - start);
      }
      report.showTimes({ firstMs, medianMs: median(times), runs: times.length });
    } catch (error) {
      if (session === this.session) this.#fail(error);
    } finally {
      report.setBusy(false);
    }
  }

  /** @param {unknown} error */
  #fail(error) {
    this.error.replaceChildren(explain(error));
  }
}

/**
 * The model and its external data files among files that were dropped or chosen together.
 *
 * @param {readonly File[]} files
 * @returns {Source | null} null where there is nothing
 */
export function toSource(files) {
  const model = files.find(({ name }) => name.toLowerCase().endsWith('.onnx')) ?? files[0];
  if (!model) return null;
  const external = files.filter((file) => file !== model).map((file) => ({ path: file.name, data: file }));
  return { name: model.name, data: model, external };
}

/**
 * Where a file is dropped anywhere on the page, or chosen, or named by `?url=`.
 *
 * @param {(source: Source) => void} open
 */
export function listenForModels(open) {
  const drop = byId('drop');
  let depth = 0;
  const holdsFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes('Files') ?? false;
  const highlight = (/** @type {number} */ change) => {
    depth = Math.max(0, depth + change);
    document.body.classList.toggle('dragging', depth > 0);
  };
  document.addEventListener('dragenter', (event) => holdsFiles(event) && highlight(1));
  document.addEventListener('dragleave', (event) => holdsFiles(event) && highlight(-1));
  document.addEventListener('dragover', (event) => holdsFiles(event) && event.preventDefault());
  document.addEventListener('drop', (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    highlight(-depth);
    const source = toSource([...event.dataTransfer?.files ?? []]);
    if (source) {
      drop.scrollIntoView({ block: 'start' });
      open(source);
    }
  });
  const input = /** @type {HTMLInputElement} */ (byId('file'));
  input.addEventListener('change', () => {
    const source = toSource([...input.files ?? []]);
    if (source) open(source);
    input.value = '';
  });
}
