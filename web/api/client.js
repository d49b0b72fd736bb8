// @ts-check
/**
 * The page's side of the worker protocol: requests with replies, progress and errors. One worker serves every session.
 */

import { unlessAborted } from './aborting.js';
import { answerDevice, chosenDevice, env, places } from './env.js';
import { cut, takeBack } from '../net/pieces.js';
import { openPort } from './port.js';
import { hasMovable, hold } from '../plans/locations.js';
import { withResolvers } from './resolvers.js';

/** @typedef {import('../pyruntime.js').ProgressEvent} ProgressEvent */
/** @typedef {(event: ProgressEvent) => void} ProgressListener */
/** @typedef {{resolve: (value: any) => void, reject: (error: Error) => void, onProgress?: ProgressListener}} Pending */
/**
 * @typedef {object} Listening
 * @property {ProgressListener} [onProgress] also receives the progress of Python's start-up
 * @property {AbortSignal} [signal] aborts the call, which then rejects with the signal's reason
 * @property {(value: any) => void} [undo] called with a result that arrives after the abort
 */

/** An error of the worker. `name` is that of the Python exception: InvalidArgument, NotImplemented, ... */
class WorkerError extends Error {
  /** @param {import('./protocol.js').WireError} error */
  constructor({ name, message, traceback }) {
    super(message);
    this.name = name;
    this.traceback = traceback;
  }
}

class Client {
  /** @type {Map<number, Pending>} */
  #pending = new Map();
  #lastId = 0;
  /** Tensors whose memory is to be released with the next message. @type {number[]} */
  #disposed = [];
  /** @type {Set<ProgressListener>} */
  #startListeners = new Set();
  /** Whether Python has started. */
  isRunning = false;
  /** The error that later requests reject with; undefined while the worker runs. @type {Error | undefined} */
  #ended;

  constructor() {
    this.port = openPort((message) => this.#receive(message), (message) => (
      this.#close(new WorkerError({ name: 'RuntimeException', message }))));
    const onProgress = (/** @type {ProgressEvent} */ event) => {
      for (const listener of this.#startListeners) listener(event);
    };
    this.#request('start', places(), [], { onProgress }).then(() => { this.isRunning = true; }, (error) => this.#close(error));
    if (env.logLevel) this.#tell('set_log_level', env.logLevel).catch(({ message }) => console.warn(message));
    const device = chosenDevice();
    /** Fulfilled when sessions can be created. @type {Promise<void>} */
    this.ready = device ? this.useDevice(device) : Promise.resolve();
    this.ready.catch(() => {}); // `create` awaits it and reports the error
  }

  /** Identity of the host of tensors that stay on the GPU. */
  get holder() {
    return this;
  }

  /** Whether GPUBuffers can be passed to Python, in the same thread. */
  get sharesBuffers() {
    return this.port.sharesBuffers;
  }

  /** Whether large tensors are sent in pieces after the request. */
  get streams() {
    return !this.sharesBuffers;
  }

  /** Call a function of `pyruntime.bridge.requests`. @param {string} name @param {...unknown} args */
  #tell(name, ...args) {
    return this.call('call', { function: name, arguments: args });
  }

  /** Use this device for sessions. @param {GPUDevice} device */
  async useDevice(device) {
    if (!this.sharesBuffers) {
      throw new Error('a GPUDevice cannot leave its thread, and Python is in a worker: have it in this thread (import '
        + 'web/page.js instead of web/pyruntime.js, or set env.worker = false before the first session)');
    }
    await this.#tell('use_device', device);
  }

  /** The device of sessions. @returns {Promise<GPUDevice>} */
  async device() {
    if (!this.sharesBuffers) {
      throw new Error('env.webgpu.device is in the worker: have Python in this thread (import web/page.js instead of '
        + 'web/pyruntime.js, or set env.worker = false before the first session)');
    }
    return this.#tell('gpu_device');
  }

  /** Download a tensor's data. @param {number} number the host's number of the tensor */
  download(number) {
    return this.call('download', { tensor: number });
  }

  /** Move a tensor to a buffer that holds it alone, for a page in the host's thread. @param {number} number the host's number of the tensor */
  materialize(number) {
    if (this.#ended) throw this.#ended;
    return this.port.materialize?.(number);
  }

  /**
   * Release a tensor's memory. Tensors are collected for one message before the next request, since a decoding step releases one for each
   * cache.
   * @param {number} number the host's number of the tensor
   */
  dispose(number) {
    if (!this.#disposed.length) queueMicrotask(() => this.#sendDisposed());
    this.#disposed.push(number);
  }

  #sendDisposed() {
    const tensors = this.#disposed.splice(0);
    if (tensors.length) this.#request('dispose', { tensors }, [], {}).catch(() => {}); // without a worker nothing is held
  }

  /**
   * @param {string} method
   * @param {unknown} args
   * @param {Transferable[]} [transfer]
   * @param {Listening} [listening]
   * @returns {Promise<any>}
   */
  async call(method, args, transfer = [], listening = {}) {
    const { onProgress, signal } = listening;
    signal?.throwIfAborted();
    if (onProgress) this.#startListeners.add(onProgress);
    try {
      if (!hasMovable(args)) return await this.#request(method, args, transfer, listening);
      return await unlessAborted(this.#move(method, args, transfer, listening), signal);
    } catch (error) {
      if (method === 'release' && this.#ended) return undefined; // there is nothing to release
      throw error;
    } finally {
      if (onProgress) this.#startListeners.delete(onProgress);
    }
  }

  /**
   * Send a request after tensors of sessions over plans were moved to Python.
   * @param {string} method
   * @param {unknown} args
   * @param {Transferable[]} transfer
   * @param {Listening} listening
   */
  async #move(method, args, transfer, listening) {
    const release = hold(args);
    try {
      const { moved } = await import('../plans/moving.js');
      const request = await moved(args, this);
      listening.signal?.throwIfAborted();
      return await this.#request(method, request, transfer, listening);
    } finally {
      release();
    }
  }

  /**
   * Send the bytes of a large tensor, after the request that names its stream.
   * @param {number} stream
   * @param {ArrayBufferView} view
   */
  send(stream, view) {
    try {
      for (const piece of cut(view)) this.port.send({ stream, piece }, [piece]);
    } catch (error) {
      this.port.send({ stream, failure: String(error) }, []);
    }
  }

  /**
   * @param {string} method
   * @param {unknown} args
   * @param {Transferable[]} transfer
   * @param {Listening} listening
   * @returns {Promise<any>}
   */
  #request(method, args, transfer, { onProgress, signal, undo }) {
    this.#sendDisposed();
    if (this.#ended) return Promise.reject(this.#ended);
    const id = ++this.#lastId;
    const { promise, resolve, reject } = withResolvers();
    const pending = { resolve, reject, onProgress };
    this.#pending.set(id, pending);
    this.port.send({ id, method, arguments: args }, transfer);
    return unlessAborted(promise, signal, undo, () => {
      pending.onProgress = undefined;
      this.#request('cancel', { request: id }, [], {}).catch(() => {});
    });
  }

  /** @param {import('./protocol.js').Answer} message */
  #receive(message) {
    const pending = this.#pending.get(message.id);
    if (!pending) return;
    if ('progress' in message && message.progress) {
      pending.onProgress?.(message.progress);
      return;
    }
    this.#pending.delete(message.id);
    if (message.spare) takeBack(message.spare);
    if ('error' in message && message.error) pending.reject(new WorkerError(message.error));
    else if ('value' in message) pending.resolve(message.value);
  }

  /**
   * Close the worker: pending and further requests fail, and the next session gets a new worker.
   * @param {Error} error
   */
  #close(error) {
    this.#ended ??= error;
    if (shared === this) shared = undefined;
    this.port.close();
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }
}

/** @type {Client | undefined} */
let shared;

/** Return the shared client if it exists. */
export function started() {
  return shared;
}

/** Return the shared client. The first call creates it with its worker, and later ones do again if the worker failed to start. */
export function client() {
  shared ??= new Client();
  return shared;
}

/** Return whether `owner` is the shared client. @param {unknown} owner */
export function isShared(owner) {
  return owner === shared;
}

answerDevice(() => client().device());
