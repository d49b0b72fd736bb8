// @ts-check
import { InferenceSession } from '../../../pyruntime.js';
import { byId, h } from '../../dom.js';
import { explain } from '../errors.js';
import { formatBytes, median } from '../format.js';
import { PhaseList } from '../phases.js';
import { compare } from './compare.js';
import { DownloadBar, FilesMissing, describeMissing, gather } from './gather.js';
import { profile } from './profile.js';
import { symbolicDimensions } from './random_input.js';
import { Report } from './report.js';

const REPEAT_MS = 1000;
const REPEATS = 20;
const SLOW_MS = 5000;
/** Milliseconds of a run up to which its profile is measured automatically. */
const PROFILED_MS = 200;

/** @typedef {import('./gather.js').Source} Source */
/** A model with its external files. @typedef {{model: Blob, external: import('./gather.js').External[]}} Opened */

/** Opens a model, shows its contents, and runs it. A model that is opened later replaces the current one. */
export class Inspector {
  /** @param {{onKept: () => void}} listeners `onKept` is called when files may have been cached */
  constructor({ onKept }) {
    this.onKept = onKept;
    this.error = byId('model-error');
    this.place = byId('report');
    this.progress = byId('model-progress');
    this.progressText = byId('model-progress-text');
    this.progressList = byId('model-phases');
    this.cancelButton = byId('model-cancel');
    this.cancelButton.addEventListener('click', () => this.cancel());
    /** Aborts the current loading or run. */
    this.work = new AbortController();
    /** A model that is waiting for its external files. @type {Source | null} */
    this.waiting = null;
    /** @type {InferenceSession | null} */
    this.session = null;
  }

  /** Abort the current work. */
  cancel() {
    this.work.abort(new DOMException('cancelled', 'AbortError'));
  }

  /** Pass files to a model that is waiting for them. @param {readonly File[]} files @returns {boolean} whether a model was waiting */
  add(files) {
    if (!this.waiting) return false;
    this.open({ ...this.waiting, files: [...this.waiting.files ?? [], ...files] });
    return true;
  }

  /** @param {Source} source */
  async open(source) {
    this.cancel();
    const work = new AbortController();
    const { signal } = work;
    this.work = work;
    this.waiting = null;
    this.error.replaceChildren();
    this.place.replaceChildren();
    const phases = new PhaseList(this.progressList);
    const bar = new DownloadBar();
    this.progressList.replaceChildren();
    this.progressText.textContent = `Loading ${source.name}${source.data instanceof Blob ? `, ${formatBytes(source.data.size)}` : ''}`;
    this.progressText.after(bar.element);
    this.progress.hidden = false;
    try {
      await this.session?.release();
      this.session = null;
      const ask = (/** @type {any} */ found) => this.#ask(found, signal);
      const opened = await gather(source, { signal, bar, ask });
      if (source.data instanceof URL) this.onKept();
      const session = await InferenceSession.create(opened.model, {
        externalData: opened.external, signal, onProgress: (event) => phases.report(event) });
      this.session = session;
      this.progress.hidden = true;
      await this.#present(source, opened, session, work);
    } catch (error) {
      this.#failed(error, source, work);
    } finally {
      bar.element.remove();
      if (work === this.work) this.progress.hidden = true;
    }
  }

  /** @param {Parameters<import('./gather.js').Ask>[0]} found @param {AbortSignal} signal @returns {Promise<void>} */
  #ask(found, signal) {
    return new Promise((resolve, reject) => {
      const go = h('button', { type: 'button', class: 'quiet small' }, found.total ? 'Download all the same' : 'Download its weights all the same');
      const box = h('div', { class: 'notice' }, h('p', { class: 'error-title' }, 'The model uses operators that are not supported yet.'),
        h('p', { class: 'error-message' }, h('code', {}, 'NotImplemented'), ` ${describeMissing(found)}`), h('div', { class: 'ways' }, go));
      this.error.replaceChildren(box);
      go.addEventListener('click', () => {
        box.remove();
        resolve();
      });
      signal.addEventListener('abort', () => reject(signal.reason), { once: true });
    });
  }

  /**
   * @param {unknown} error
   * @param {Source} source
   * @param {AbortController} work
   */
  #failed(error, source, work) {
    if (work !== this.work) return; // another model was opened meanwhile
    if (work.signal.aborted) {
      this.error.replaceChildren(h('p', { class: 'notice', role: 'status' }, `Cancelled: ${source.name} was not opened.`));
      return;
    }
    if (error instanceof FilesMissing) this.waiting = source;
    this.error.replaceChildren(explain(error, error instanceof FilesMissing ? {
      title: error.paths.length > 1 ? 'The model needs more files.' : 'The model needs another file.',
      next: `Drop or choose ${error.paths.join(', ')} now; ${source.name} waits for it.` } : {}));
  }

  /**
   * @param {Source} source
   * @param {Opened} opened
   * @param {InferenceSession} session
   * @param {AbortController} work
   */
  async #present(source, opened, session, work) {
    const symbols = symbolicDimensions(session.inputMetadata);
    const link = source.data instanceof URL ? permalink(source.data) : null;
    const size = opened.external.reduce((sum, { data }) => sum + data.size, opened.model.size);
    const report = new Report({ name: source.name, size, link, session, symbols });
    const current = () => session === this.session;
    report.form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (current()) this.#working(report, async (signal) => { await this.#run(session, report, signal); });
    });
    report.stopButton.addEventListener('click', () => this.cancel());
    const measure = async (/** @type {AbortSignal} */ signal, progress = (/** @type {number} */ done, /** @type {number} */ total) => {}) => {
      report.profile.replaceChildren(await profile(session, await report.feeds(), signal, progress));
    };
    report.profileButton.addEventListener('click', () => this.#working(report, async (signal) => {
      await measure(signal, (done, total) => report.say(`Profiling, run ${done + 1} of ${total}`));
      report.say('Profiled.');
    }));
    report.compareButton.addEventListener('click', () => this.#working(report, async (signal) => {
      report.comparison.replaceChildren(await compare(session, opened, await report.feeds(), signal, (text) => report.say(text)));
      report.say('Measured.');
    }));
    report.show(await session.explain());
    if (work.signal.aborted) return;
    this.place.replaceChildren(report.element);
    await this.#working(report, async (signal) => {
      const ms = await this.#run(session, report, signal);
      if (ms < PROFILED_MS) await measure(signal);
    });
  }

  /**
   * Run a task; only one runs at a time, and each can be cancelled.
   * @param {Report} report
   * @param {(signal: AbortSignal) => Promise<void>} task
   */
  async #working(report, task) {
    const work = new AbortController();
    this.work = work;
    this.error.replaceChildren();
    report.setBusy(true);
    try {
      await task(work.signal);
    } catch (error) {
      if (work.signal.aborted) report.say('Cancelled.');
      else if (report.session === this.session) this.error.replaceChildren(explain(error));
    } finally {
      report.setBusy(false);
    }
  }

  /**
   * Run the model once for the first time, then for up to a second for the median.
   * @param {InferenceSession} session
   * @param {Report} report
   * @param {AbortSignal} signal
   */
  async #run(session, report, signal) {
    const feeds = await report.feeds();
    const begin = performance.now();
    report.say('Running');
    const outputs = await session.run(feeds, { signal, onProgress: ({ phase, loaded = 0, total = 1 }) => {
      if (phase === 'run') report.say(`Running: ${Math.round(100 * loaded / total)} %`);
    } });
    const firstMs = performance.now() - begin;
    report.showOutputs(outputs);
    report.showTimes(firstMs);
    report.show(await session.explain());
    const times = [];
    const repeatFrom = performance.now();
    const fewest = firstMs < SLOW_MS ? 3 : 1;
    while (times.length < REPEATS && (performance.now() - repeatFrom < REPEAT_MS || times.length < fewest)) {
      const start = performance.now();
      await session.run(feeds, { signal });
      times.push(performance.now() - start);
    }
    report.showTimes(firstMs, times);
    return median(times);
  }
}

/** Return the URL of the page that opens this model. @param {URL} model */
function permalink(model) {
  const base = new URL(document.baseURI);
  const folder = new URL('.', base).href;
  const shown = model.href.startsWith(folder) ? model.href.slice(folder.length) : model.href;
  const page = new URL(base.pathname, base);
  page.hash = `model=${shown}`;
  return page.href;
}
