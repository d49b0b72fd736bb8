// @ts-check
/** A language model's folder that the visitor chooses, of this site or dropped. Its contents are shown before it is fetched. */

import { formatBytes } from '../format.js';
import { download } from '../model/download.js';
import * as store from '../model/store.js';
import { requestAdapter } from '../../../gpu/adapter.js';
import { h } from '../../dom.js';

/** Bytes above which the visitor is asked before a download. */
const ASK_FROM = 50_000_000;

/** @typedef {import('../../../pyruntime.js').FolderSource} FolderSource */
/**
 * @typedef {object} Source
 * @property {string} name
 * @property {number} bytes of weights
 * @property {FolderSource} folder
 * @property {() => Promise<boolean>} talks whether the model has a chat template
 * @property {() => void} done called when it is loaded
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

/** Dropped files by path, as a folder with file sizes. */
class DroppedFolder {
  /** @param {Map<string, File>} files */
  constructor(files) {
    const [first = ''] = files.keys();
    this.name = first.includes('/') ? first.split('/')[0] : 'the dropped files';
    this.files = new Map([...files].map(([path, file]) => [path.split('/').slice(path.includes('/') ? 1 : 0).join('/'), file]));
  }

  /** Return a file by path, or by name if the files have no paths. @param {string} path */
  #find(path) {
    return this.files.get(path) ?? this.files.get(/** @type {string} */ (path.split('/').pop())) ?? null;
  }

  /** @param {string} path */
  async size(path) {
    return this.#find(path)?.size ?? null;
  }

  /** @param {string} path */
  async has(path) {
    return this.#find(path) !== null;
  }

  /** @param {string} path */
  async read(path) {
    return this.#find(path);
  }
}

/** @param {{read: (path: string) => Promise<Blob | null>}} folder @param {string} path @returns {Promise<any>} */
async function parsed(folder, path) {
  const blob = await folder.read(path);
  return blob ? JSON.parse(await blob.text()) : null;
}

/** Return the bytes of GPU memory that a thousand tokens of a text take, in float32. @param {any} config configuration of either kind of folder */
function cacheBytes(config) {
  const layers = config?.num_hidden_layers ?? 0;
  const heads = config?.num_key_value_heads ?? config?.num_attention_heads ?? 0;
  const size = config?.head_dim ?? config?.head_size ?? (config?.hidden_size ?? 0) / (config?.num_attention_heads || 1);
  return 1000 * 2 * layers * heads * size * 4;
}

/**
 * Return the first graph that exists and its external weights, each with its size, by exporters' naming conventions.
 * @param {KeptFolder | DroppedFolder} folder
 * @param {string[]} graphs
 */
async function weightsOf(folder, graphs) {
  /** @type {[path: string, bytes: number][]} */
  const files = [];
  for (const graph of graphs) {
    const size = await folder.size(graph);
    if (size === null) continue;
    files.push([graph, size]);
    // Names of exporters for transformers.js, which are numbered, and of onnxruntime-genai's builder.
    for (let i = 0; i < 100; i++) {
      const path = `${graph}_data${i ? `_${i}` : ''}`;
      const more = await folder.size(path);
      if (more === null) break;
      files.push([path, more]);
    }
    const more = await folder.size(`${graph}.data`);
    if (more !== null) files.push([`${graph}.data`, more]);
    break;
  }
  return files;
}

/**
 * @param {URL | Map<string, File>} named
 * @param {HTMLElement} place element for messages and questions
 * @returns {Promise<Source | null>} null if the visitor declines
 */
export async function lookInto(named, place) {
  const folder = named instanceof URL ? new KeptFolder(named) : new DroppedFolder(named);
  const config = await parsed(folder, 'config.json');
  const genai = (await parsed(folder, 'genai_config.json'))?.model?.decoder;
  const { SUFFIXES } = await import('../../../text/repository.js');
  const asked = config?.['transformers.js_config']?.dtype;
  const wanted = typeof asked === 'string' ? [asked] : ['q4f16', 'q4', 'fp16', 'fp32', 'q8'];
  const names = wanted.flatMap((dtype) => ['model', 'decoder_model_merged'].map((stem) => `onnx/${stem}${SUFFIXES[dtype]}.onnx`));
  const files = await weightsOf(folder, [...config ? names : [], ...genai ? [genai.filename ?? 'model.onnx'] : []]);
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
  const words = await parsed(folder, 'tokenizer_config.json').catch(() => null);
  return {
    name: folder.name, bytes, folder,
    talks: async () => Boolean(words?.chat_template) || await folder.has('chat_template.jinja'),
    done: () => {},
  };
}
