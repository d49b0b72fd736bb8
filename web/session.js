// @ts-check
/** InferenceSession: a model, held by the worker. */

import { client } from './client.js';
import { Tensor, bytesOf, fromWire, toWire } from './tensor.js';

/** @typedef {import('./pyruntime.js').InferenceSession} PublicSession */
/** @typedef {import('./pyruntime.js').ModelSource} ModelSource */
/** @typedef {import('./pyruntime.js').ValueMetadata} ValueMetadata */

/**
 * What crosses to the worker for a model or an external data file: an absolute URL, a Blob, or bytes of its own.
 * @param {ModelSource} source
 * @returns {string | Blob | ArrayBuffer}
 */
function toSource(source) {
  if (typeof source === 'string' || source instanceof URL) {
    return new URL(source, globalThis.document?.baseURI ?? globalThis.location.href).href;
  }
  if (source instanceof Blob) return source;
  if (ArrayBuffer.isView(source)) return bytesOf(source);
  if (source instanceof ArrayBuffer) return source.slice(0);
  if (typeof SharedArrayBuffer !== 'undefined' && source instanceof SharedArrayBuffer) {
    return bytesOf(new Uint8Array(new Uint8Array(source)));
  }
  throw new TypeError('the model must be a URL, a Blob, an ArrayBuffer or a typed array');
}

/** @param {unknown} value @returns {Transferable[]} */
function transferable(value) {
  return value instanceof ArrayBuffer ? [value] : [];
}

/** @implements {PublicSession} */
export class InferenceSession {
  #client;
  #handle;
  #released = false;

  /**
   * Use `InferenceSession.create`.
   * @param {ReturnType<typeof client>} owner
   * @param {{handle: number, inputs: ValueMetadata[], outputs: ValueMetadata[]}} info
   */
  constructor(owner, { handle, inputs, outputs }) {
    this.#client = owner;
    this.#handle = handle;
    /** @type {readonly ValueMetadata[]} */
    this.inputMetadata = inputs;
    /** @type {readonly ValueMetadata[]} */
    this.outputMetadata = outputs;
  }

  /**
   * Load a model: `create(source, options?)` or `create(buffer, byteOffset, byteLength?, options?)`.
   * @param {ModelSource} source
   * @param {any[]} rest
   */
  static async create(source, ...rest) {
    let options = rest[0] ?? {};
    if (typeof options === 'number') {
      const [byteOffset, byteLength] = rest;
      const buffer = /** @type {ArrayBuffer} */ (source);
      const length = typeof byteLength === 'number' ? byteLength : buffer.byteLength - byteOffset;
      source = new Uint8Array(buffer, byteOffset, length);
      options = rest.find((value) => typeof value === 'object' && value !== null) ?? {};
    }
    const { onProgress, signal, externalData = [], ...plain } = options;
    const model = toSource(source);
    const files = externalData.map((/** @type {{path: string, data: ModelSource}} */ { path, data }) => (
      { path, data: toSource(data) }));
    const transfer = [model, ...files.map((/** @type {{data: unknown}} */ { data }) => data)].flatMap(transferable);
    const owner = client();
    const undo = (/** @type {{handle: number}} */ { handle }) => {
      owner.call('release', { session: handle }).catch(() => {}); // without a worker there is nothing to release
    };
    const info = await owner.call(
      'create', { model, externalData: files, options: plain }, transfer, { onProgress, signal, undo });
    return new InferenceSession(owner, info);
  }

  get inputNames() {
    return this.inputMetadata.map(({ name }) => name);
  }

  get outputNames() {
    return this.outputMetadata.map(({ name }) => name);
  }

  /**
   * `run(feeds)`, `run(feeds, options)`, `run(feeds, fetches, options?)`.
   * @param {Record<string, Tensor>} feeds
   * @param {any} [fetches] names, or names with tensors to be filled (null: a new one)
   * @param {import('./pyruntime.js').RunOptions} [options]
   * @returns {Promise<Record<string, Tensor>>}
   */
  async run(feeds, fetches, options) {
    this.#refuseReleased();
    if (fetches && !Array.isArray(fetches) && !Object.keys(fetches).some((name) => this.outputNames.includes(name))) {
      [fetches, options] = [undefined, fetches];
    }
    /** @type {Record<string, import('./protocol.js').WireTensor>} */
    const wire = {};
    for (const [name, tensor] of Object.entries(feeds)) {
      if (!(tensor instanceof Tensor)) throw new TypeError(`input '${name}' must be a Tensor`);
      wire[name] = toWire(tensor);
    }
    const names = fetches ? (Array.isArray(fetches) ? fetches : Object.keys(fetches)) : null;
    const transfer = Object.values(wire).flatMap(({ data }) => transferable(data));
    const { signal, ...plain } = options ?? {};
    const outputs = await this.#client.call(
      'run', { session: this.#handle, feeds: wire, fetches: names, options: plain }, transfer, { signal });
    /** @type {Record<string, Tensor>} */
    const results = {};
    for (const [name, value] of Object.entries(/** @type {Record<string, any>} */ (outputs))) {
      results[name] = deliver(name, fromWire(value), Array.isArray(fetches) ? null : fetches?.[name]);
    }
    return results;
  }

  /** What the model is, where each operator runs and why, and what memory it takes. */
  async summary() {
    this.#refuseReleased();
    return this.#client.call('call', { function: 'summary', arguments: [this.#handle] });
  }

  async release() {
    if (this.#released) return;
    this.#released = true;
    await this.#client.call('release', { session: this.#handle });
  }

  #refuseReleased() {
    if (this.#released) throw new Error('the session is released');
  }
}

/**
 * `result`, or the caller's own tensor filled with it.
 * @param {string} name
 * @param {Tensor} result
 * @param {Tensor | null | undefined} target
 */
function deliver(name, result, target) {
  if (!target) return result;
  if (target.type !== result.type || String(target.dims) !== String(result.dims)) {
    throw new RangeError(`output '${name}' is ${result.type} [${result.dims}], its tensor ${target.type} [${target.dims}]`);
  }
  const data = /** @type {any} */ (target.data);
  if (Array.isArray(data)) data.splice(0, data.length, .../** @type {string[]} */ (result.data));
  else data.set(result.data);
  return target;
}
