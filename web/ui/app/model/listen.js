// @ts-check
/** The ways to choose a model: dropping files, the file picker, an address, a sample, `?url=` and `#model=` of the page's address. */

import { byId } from '../../dom.js';
import { ownAddress } from '../errors.js';

/** @typedef {import('./inspector.js').Inspector} Inspector */

/** Return whether a file's name is that of a model in one of the two formats. @param {File} file */
function isModelFile({ name }) {
  return /\.(onnx|ort)$/i.test(name);
}

/**
 * Return the model and its other files among files that were dropped or chosen together.
 * @param {readonly File[]} files
 * @returns {import('./gather.js').Source | null} null without files
 */
function toSource(files) {
  const model = files.find(isModelFile) ?? files[0];
  return model ? { name: model.name, data: model, files: files.filter((file) => file !== model) } : null;
}

/**
 * @param {Inspector} inspector
 * @param {(picture: File) => void} openPicture
 * @param {(files: Map<string, File>) => boolean} openFolder returns whether files by path are a language model
 */
export function listen(inspector, openPicture, openFolder) {
  const take = (/** @type {readonly File[]} */ files) => {
    const isModel = files.some(isModelFile);
    if (!isModel && files.length === 1 && files[0].type.startsWith('image/')) {
      byId('picture').scrollIntoView({ block: 'start' });
      openPicture(files[0]);
      return;
    }
    byId('drop').scrollIntoView({ block: 'start' });
    if (!isModel && files.length && inspector.add(files)) return;
    const source = toSource(files);
    if (source) inspector.open(source);
  };
  listenForDrops(take, openFolder);
  const input = /** @type {HTMLInputElement} */ (byId('file'));
  input.addEventListener('change', () => {
    take([...input.files ?? []]);
    input.value = '';
  });
  byId('model-address').addEventListener('submit', (event) => {
    event.preventDefault();
    openAddress(inspector, /** @type {HTMLInputElement} */ (byId('model-path')).value.trim());
  });
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[data-model]'))) {
    button.addEventListener('click', () => openAddress(inspector, button.dataset.model ?? ''));
  }
  window.addEventListener('hashchange', () => openNamed(inspector));
  openNamed(inspector);
}

/**
 * Return the files of dropped folders, by path; empty without folders.
 * @param {DataTransfer} dropped
 * @returns {Promise<Map<string, File>>}
 */
async function filesOfFolders(dropped) {
  /** @type {Map<string, File>} */
  const files = new Map();
  const walk = async (/** @type {any} */ entry) => {
    if (entry?.isFile) {
      files.set(entry.fullPath.slice(1), await new Promise((resolve, reject) => entry.file(resolve, reject)));
    } else if (entry?.isDirectory) {
      const reader = entry.createReader();
      for (;;) { // a reader returns large folders in parts
        const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
        if (!some.length) break;
        for (const inner of some) await walk(inner);
      }
    }
  };
  const entries = [...dropped.items].map((item) => item.webkitGetAsEntry?.());
  if (entries.some((entry) => entry?.isDirectory)) for (const entry of entries) await walk(entry);
  return files;
}

/** @param {(files: File[]) => void} take @param {(files: Map<string, File>) => boolean} openFolder */
function listenForDrops(take, openFolder) {
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
    const { dataTransfer } = event;
    const files = [...dataTransfer?.files ?? []];
    if (openFolder(new Map(files.map((file) => [file.name, file])))) return;
    if (dataTransfer && [...dataTransfer.items].some((item) => item.webkitGetAsEntry?.()?.isDirectory)) {
      filesOfFolders(dataTransfer).then((inside) => openFolder(inside) || take([...inside.values()]));
      return;
    }
    take(files);
  });
}

/** Open the model that the page's address names, if any. @param {Inspector} inspector */
function openNamed(inspector) {
  const inHash = /^#model=(.+)$/.exec(window.location.hash)?.[1];
  const named = inHash ? decodeURIComponent(inHash) : new URLSearchParams(window.location.search).get('url');
  if (!named) return;
  byId('model').scrollIntoView();
  openAddress(inspector, named);
}

/** @param {Inspector} inspector @param {string} named an address, of this site or another */
function openAddress(inspector, named) {
  const url = ownAddress(named, 'model-error',
    'Download the model and drop it here, or name a path on this site, such as #model=models/digits.onnx.');
  if (url) inspector.open({ name: url.pathname.split('/').pop() || url.href, data: url });
}
