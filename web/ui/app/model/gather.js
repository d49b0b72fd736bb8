// @ts-check
/** Collect all files of a model from the source that the visitor chose, with progress. */

import { operators } from '../../../pyruntime.js';
import { h } from '../../dom.js';
import { formatBytes, formatCount, formatDuration } from '../format.js';
import { download } from './download.js';
import { Scanner } from '../../../onnx/scanner.js';
import { Summary, summaryOf } from '../../../onnx/summary.js';

/** @typedef {import('./download.js').Progress} Progress */
/** @typedef {{path: string, data: Blob}} External */
/**
 * @typedef {object} Source
 * @property {string} name
 * @property {Blob | URL} data
 * @property {readonly File[]} [files] files dropped or chosen with the model
 */

/** The model needs files that the visitor did not provide. */
export class FilesMissing extends Error {
  name = 'NoSuchFile';

  /** @param {string[]} paths */
  constructor(paths) {
    super(`the model keeps weights in ${paths.join(', ')}`);
    this.paths = paths;
  }
}

/** Shows name, progress and remaining time of a download. */
export class DownloadBar {
  constructor() {
    this.text = h('span', { class: 'download-text' });
    this.bar = h('progress', { max: 1, 'aria-label': 'Download' });
    this.element = h('div', { class: 'download', hidden: true }, this.text, this.bar);
  }

  /** @param {string} name @param {Progress} progress */
  show(name, { loaded, total, bytesPerSecond, secondsLeft }) {
    this.element.hidden = false;
    const [far, speed] = [total ? `${formatBytes(loaded)} of ${formatBytes(total)}` : formatBytes(loaded), `${formatBytes(Math.round(bytesPerSecond))} a second`];
    const left = secondsLeft === null || loaded === total ? '' : `, ${formatDuration(secondsLeft)} left`;
    this.text.textContent = `${name}: ${far}, ${speed}${left}`;
    if (total) this.bar.value = loaded / total;
    else this.bar.removeAttribute('value');
  }

  done() {
    this.element.hidden = true;
  }
}

/**
 * Asks whether to continue with a model that has unsupported operators.
 * @callback Ask
 * @param {{missing: {name: string, count: number}[], loaded: number, total: number}} found
 * @returns {Promise<void>} rejected if the visitor declines
 */

/**
 * @param {Source} source
 * @param {object} options
 * @param {AbortSignal} options.signal
 * @param {DownloadBar} options.bar
 * @param {Ask} options.ask
 * @returns {Promise<{model: Blob, external: External[]}>}
 */
export async function gather(source, { signal, bar, ask }) {
  const { name, data, files = [] } = source;
  if (data instanceof Blob) {
    return { model: data, external: chosen(await summaryOf(data, signal), files) };
  }
  let scanner = new Scanner();
  let asked = false;
  const { blob, kept } = await download(data, {
    signal,
    onProgress: (progress) => bar.show(name, progress),
    onChunk: async (chunk, loaded, total) => {
      if (loaded === chunk.length) scanner = new Scanner();
      const saw = scanner.hasAllNodes;
      scanner.push(chunk);
      if (loaded === total) scanner.end();
      if (asked || saw || !scanner.hasAllNodes) return;
      const missing = new Summary(scanner).unsupported(await operators());
      if (missing.length && loaded === total) return; // there is nothing left to save
      asked = true;
      if (missing.length) await ask({ missing, loaded, total });
    },
  });
  scanner.end();
  const summary = kept ? await summaryOf(blob, signal) : new Summary(scanner);
  const external = await fetchExternal(data, summary, { signal, bar, ask }, asked);
  bar.done();
  return { model: blob, external };
}

/**
 * Fetch the external files that a model names from its folder. Other paths are left to the runtime, which refuses them.
 * @param {URL} model
 * @param {Summary} summary
 * @param {{signal: AbortSignal, bar: DownloadBar, ask: Ask}} options
 * @param {boolean} asked
 */
async function fetchExternal(model, summary, { signal, bar, ask }, asked) {
  const external = [];
  const plain = [...summary.external].filter((path) => !/^[/\\]|(^|[/\\])\.\.([/\\]|$)|^[a-z][a-z\d+.-]*:/i.test(path));
  if (plain.length && !asked) {
    const missing = summary.unsupported(await operators());
    if (missing.length) await ask({ missing, loaded: 0, total: 0 });
  }
  for (const path of plain) {
    const url = new URL(path.split('/').map(encodeURIComponent).join('/'), model);
    if (url.origin !== model.origin) continue;
    const { blob } = await download(url, { signal, onProgress: (progress) => bar.show(path, progress) });
    external.push({ path, data: blob });
  }
  return external;
}

/** Return the external files of a model among the files provided with it. @param {Summary} summary @param {readonly File[]} files */
function chosen(summary, files) {
  const last = (/** @type {string} */ path) => path.split(/[/\\]/).pop();
  const external = [];
  const absent = [];
  for (const path of summary.external) {
    const file = files.find(({ name }) => name === path) ?? files.find(({ name }) => name === last(path));
    if (file) external.push({ path, data: file });
    else absent.push(path);
  }
  if (absent.length && !summary.broken) throw new FilesMissing(absent);
  const used = new Set(external.map(({ data }) => data));
  return [...external, ...files.filter((file) => !used.has(file)).map((file) => ({ path: file.name, data: file }))];
}

/** Describe what an unsupported operator means for the download. @param {Parameters<Ask>[0]} found */
export function describeMissing({ missing, loaded, total }) {
  const names = missing.map(({ name, count }) => `${name} (${formatCount(count, 'node')})`).join(', ');
  const stopped = total ? ` The download waits at ${formatBytes(loaded)} of ${formatBytes(total)}.` : ' Its weights have not been downloaded.';
  return `${names}.${stopped}`;
}
