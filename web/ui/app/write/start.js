// @ts-check
/** The ways to choose a language model: a folder dropped or chosen, `#repo=` of the page's address. */

import { byId } from '../../dom.js';
import { explain, ownAddress } from '../errors.js';
import { lookInto } from './source.js';
import { Write } from './write.js';

/** Return whether files by path are a language model. @param {Map<string, File>} files */
function isLanguageModel(files) {
  const names = new Set([...files.keys()].map((path) => path.split('/').pop()));
  return names.has('tokenizer.json') && (names.has('config.json') || names.has('genai_config.json'));
}

/**
 * @param {() => void} onKept called when more is cached on this computer
 * @param {Promise<boolean>} isSoftware whether the adapter is a software adapter
 * @returns {(files: Map<string, File>) => boolean} opens files that are a language model
 */
export function startWriting(onKept, isSoftware) {
  const write = new Write(onKept, isSoftware);
  const open = async (/** @type {URL | Map<string, File>} */ named) => {
    byId('write').scrollIntoView({ block: 'start' });
    byId('write-error').replaceChildren();
    try {
      const source = await lookInto(named, byId('write-source'));
      if (source) await write.open(source);
    } catch (error) {
      byId('write-error').replaceChildren(explain(error, { title: 'This folder cannot be read.' }));
    }
  };
  const take = (/** @type {Map<string, File>} */ files) => {
    if (!isLanguageModel(files)) return false;
    open(files);
    return true;
  };
  const input = /** @type {HTMLInputElement} */ (byId('write-folder'));
  input.addEventListener('change', () => {
    const files = new Map([...input.files ?? []].map((file) => [file.webkitRelativePath || file.name, file]));
    if (files.size && !take(files)) {
      byId('write-error').replaceChildren(explain(new RangeError([...files.keys()][0].split('/')[0]), {
        title: 'This folder is not one of a language model.', next: 'It must hold tokenizer.json, and config.json or genai_config.json.' }));
    }
    input.value = '';
  });
  const openNamed = () => {
    const named = /^#repo=(.+)$/.exec(window.location.hash)?.[1];
    if (!named) return;
    byId('write').scrollIntoView();
    const url = ownAddress(decodeURIComponent(named).replace(/\/?$/, '/'), 'write-error',
      'Download the folder and drop it here, or name one of this site, such as #repo=models/austen.');
    if (url) open(url);
  };
  window.addEventListener('hashchange', openNamed);
  openNamed();
  return take;
}
