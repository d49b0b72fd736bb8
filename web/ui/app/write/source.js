// @ts-check
/** A language model's folder that the visitor chooses, of this site or dropped. Its contents are shown before it is fetched. */

import { formatBytes } from '../format.js';
import { download } from '../model/download.js';
import * as store from '../model/store.js';
import { requestAdapter } from '../../../gpu/adapter.js';
import { json, openFolder } from '../../../text/folder.js';
import { readRepository } from '../../../text/repository.js';
import { h } from '../../dom.js';

/** Bytes above which the visitor is asked before a download. */
const ASK_FROM = 50_000_000;

/** @typedef {import('../../../text/folder.js').Folder} Folder */
/**
 * @typedef {object} Source
 * @property {string} name
 * @property {number} bytes of weights
 * @property {Folder} folder
 * @property {() => Promise<boolean>} talks whether the model has a chat template
 */

/** A folder of this site, whose files are cached for later visits. */
class KeptFolder {
  /** @param {URL} base address, ending in a slash */
  constructor(base) {
    this.base = base;
    this.name = base.pathname.split('/').filter(Boolean).pop() ?? base.host;
  }

  /** @param {string} path */
  url(path) {
    return new URL(path.split('/').map(encodeURIComponent).join('/'), this.base);
  }

  /** Return the bytes of a file, 0 if the server does not send them; null if there is no file. @param {string} path @param {AbortSignal} [signal] */
  async size(path, signal) {
    const response = await fetch(this.url(path), { method: 'HEAD', cache: 'no-cache', signal }).catch(() => null);
    if (response) return response.ok ? Number(response.headers.get('Content-Length') ?? 0) : null;
    return (await store.find(this.url(path).href, null))?.size ?? null;
  }

  /** @param {string} path @param {AbortSignal} [signal] */
  async has(path, signal) {
    return await this.size(path, signal) !== null;
  }

  /** @param {string} path @param {{signal?: AbortSignal, onProgress?: (loaded: number, total: number | undefined) => void}} [options] */
  async read(path, { signal = new AbortController().signal, onProgress } = {}) {
    if (!await this.has(path, signal)) return null;
    const report = (/** @type {import('../model/download.js').Progress} */ { loaded, total }) => onProgress?.(loaded, total || undefined);
    return (await download(this.url(path), { signal, onProgress: report })).blob;
  }
}

/** Return the bytes of GPU memory that a thousand tokens of a text take, in float32. @param {any} config configuration of either kind of folder */
function cacheBytes(config) {
  const layers = config?.num_hidden_layers ?? 0;
  const heads = config?.num_key_value_heads ?? config?.num_attention_heads ?? 0;
  const size = config?.head_dim ?? config?.head_size ?? (config?.hidden_size ?? 0) / (config?.num_attention_heads || 1);
  return 1000 * 2 * layers * heads * size * 4;
}

/** Return a graph and its external weights, each with its size, by exporters' naming conventions. @param {Folder} folder @param {string} graph */
async function weightsOf(folder, graph) {
  /** @type {[path: string, bytes: number][]} */
  const files = [];
  const add = async (/** @type {string} */ path) => {
    const size = folder instanceof KeptFolder ? await folder.size(path) : (await folder.read(path))?.size ?? null;
    if (size !== null) files.push([path, size]);
    return size !== null;
  };
  await add(graph);
  // As exporters for transformers.js name them, several in a row; as onnxruntime-genai's builder does.
  for (let i = 0; i < 100 && await add(`${graph}_data${i ? `_${i}` : ''}`); i++);
  await add(`${graph}.data`);
  return files;
}

/**
 * @param {URL | Map<string, File>} named
 * @param {HTMLElement} place element for messages and questions
 * @returns {Promise<Source | null>} null if the visitor declines
 */
export async function lookInto(named, place) {
  const folder = named instanceof URL ? new KeptFolder(named) : openFolder(named);
  const files = await weightsOf(folder, (await readRepository(folder, undefined)).model);
  const config = await json(folder, 'config.json');
  const genai = (await json(folder, 'genai_config.json'))?.model?.decoder;
  const bytes = files.reduce((sum, [, size]) => sum + size, 0);
  const adapter = await requestAdapter();
  const largest = adapter?.limits.maxBufferSize;
  const caches = cacheBytes(config?.text_config ?? config) || cacheBytes(genai);
  const memory = `${formatBytes(bytes)} of weights${caches ? `, and ${formatBytes(caches)} for a thousand tokens of text` : ''}`;
  const limit = largest ? `; the largest buffer of this GPU has ${formatBytes(largest)}` : '; there is no GPU here';
  const go = h('button', { type: 'button' }, `Load ${formatBytes(bytes)}`);
  const away = h('button', { type: 'button', class: 'quiet' }, 'Not now');
  place.replaceChildren(h('div', { class: 'notice' },
    h('ul', { class: 'files' }, ...files.map(([path, size]) => h('li', {}, h('code', {}, path), ` ${formatBytes(size)}`))),
    h('p', {}, `On the GPU: ${memory}${limit}.`),
    bytes >= ASK_FROM && h('div', { class: 'ways' }, go, away)));
  if (bytes >= ASK_FROM) {
    const wants = await new Promise((resolve) => {
      go.addEventListener('click', () => resolve(true));
      away.addEventListener('click', () => resolve(false));
    });
    if (!wants) {
      place.replaceChildren();
      return null;
    }
    go.parentElement?.remove();
  }
  const words = await json(folder, 'tokenizer_config.json').catch(() => null);
  return {
    name: folder.name, bytes, folder,
    talks: async () => Boolean(words?.chat_template) || await folder.has('chat_template.jinja'),
  };
}
