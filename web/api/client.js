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
 * @property {ProgressListener} [onProgress] also gets the progress of Python's start, while that takes
 * @property {AbortSignal} [signal] ends the call, which then rejects with the signal's reason
 * @property {(value: any) => void} [undo] gets an answer that arrives after the abort
 */

/** An error that happened in the worker. `name` is the Python exception's: InvalidArgument, NotImplemented, ... */
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
  /** Tensors whose memory is to be given back with the next message. @type {number[]} */
  #disposed = [];
  /** @type {Set<ProgressListener>} */
  #startListeners = new Set();
  /** Whether Python has started. */
  isRunning = false;
  /** Why the worker takes no further requests. @type {Error | undefined} */
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
    /** Fulfilled when sessions can be made. @type {Promise<void>} */
    this.ready = device ? this.useDevice(device) : Promise.resolve();
    this.ready.catch(() => {}); // `create` awaits it and reports the error
  }

  /** The owner of the tensors that stay on the GPU. */
  get holder() {
    return this;
  }

  /** Whether GPUBuffers can go to Python. */
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

  /** Let sessions compute on this device. @param {GPUDevice} device */
  async useDevice(device) {
    if (!this.sharesBuffers) {
      throw new Error('a GPUDevice cannot leave its thread, and Python is in a worker: have it in this thread (import '
        + 'web/page.js instead of web/pyruntime.js, or set env.worker = false before the first session)');
    }
    await this.#tell('use_device', device);
  }

  /** The device that sessions compute on. @returns {Promise<GPUDevice>} */
  async device() {
    if (!this.sharesBuffers) {
      throw new Error('env.webgpu.device is in the worker: have Python in this thread (import web/page.js instead of '
        + 'web/pyruntime.js, or set env.worker = false before the first session)');
    }
    return this.#tell('gpu_device');
  }

  /** A tensor's data. @param {number} number by which the host knows it */
  download(number) {
    return this.call('download', { tensor: number });
  }

  /** Move a tensor to a buffer that holds it alone, for a page in the host's thread. @param {number} number by which the host knows it */
  materialize(number) {
    if (this.#ended) throw this.#ended;
    return this.port.materialize?.(number);
  }

  /**
   * Give a tensor's memory back. A decoding step gives back one for each cache: all of them go in one message, before the
   * next request.
   * @param {number} number by which the host knows it
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
      if (method === 'release' && this.#ended) return undefined; // nothing is left to be released
      throw error;
    } finally {
      if (onProgress) this.#startListeners.delete(onProgress);
    }
  }

  /**
   * Send a request after its tensors of sessions over plans were moved to Python.
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
   * Send a large tensor after the request that names its stream.
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
   * Close the worker: its pending and further requests fail, and the next session gets a new worker.
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

/** The one client, where it exists already. */
export function started() {
  return shared;
}

/** The one client; its worker is made at the first call, and again when it could not start. */
export function client() {
  shared ??= new Client();
  return shared;
}

/** Whether this is the one client. @param {unknown} owner */
export function isShared(owner) {
  return owner === shared;
}

answerDevice(() => client().device());
