// @ts-check
/** Upload bytes to the GPU, large ones through staging buffers (pool.js). */

import { BlobReader } from '../net/blobs.js';
import { LARGE, pieceSize } from '../net/pieces.js';
import { Pool } from './pool.js';

/**
 * @typedef {object} Write
 * @property {GPUBuffer} buffer
 * @property {number} offset
 * @property {ArrayBuffer | Uint8Array | Blob | BlobReader | ModelFile | ArrivingBuffer | import('../net/pieces.js').Incoming | PythonBytes} data
 * @property {number} dataOffset
 * @property {number} nbytes
 *
 * @typedef {import('../loading/file.js').ModelFile} ModelFile
 * @typedef {import('../loading/buffer.js').ArrivingBuffer} ArrivingBuffer
 *
 * @typedef {{getBuffer: (type: 'u8') => {data: Uint8Array, release: () => void}}} PythonBytes A buffer of Python's, as a
 * proxy: where it is in memory changes when that grows.
 */

/** @type {GPUErrorFilter[]} */
const SCOPES = ['internal', 'out-of-memory', 'validation'];

/**
 * Do `work` within error scopes; they are closed again also when it throws.
 * @param {GPUDevice} device
 * @param {() => void} work
 * @returns {Promise<GPUError | null>[]} what the scopes caught
 */
export function guarded(device, work) {
  for (const kind of SCOPES) device.pushErrorScope(kind);
  /** @type {Promise<GPUError | null>[]} */
  let scopes = [];
  try {
    work();
  } finally {
    scopes = SCOPES.map(() => device.popErrorScope());
    for (const scope of scopes) scope.catch(() => {}); // a lost device rejects them; `caught` reports it
  }
  return scopes;
}

/** What an error scope says: '' where it caught nothing. @param {GPUError | null | undefined} error */
export function told(error) {
  return error ? error.message || 'the browser does not say why' : '';
}

/**
 * Throw the first error that the scopes caught: an Error, which a GPUError is not, and Python takes nothing else.
 * @param {Promise<GPUError | null>[]} scopes
 */
export async function caught(scopes) {
  for (const error of await Promise.all(scopes)) if (error) throw new Error(told(error));
}

/**
 * `filling`: buffers that runs write which wait for their turn or have it, and how many such runs there are.
 * @type {WeakMap<GPUDevice, {writes: Pool, turn: Promise<unknown>, filling: Map<GPUBuffer, number>}>}
 */
const devices = new WeakMap();

/** The last of the runs that are submitted in slices or wait for such, of devices that have one. @type {Map<GPUDevice, Promise<unknown>>} */
export const longRuns = new Map();

/** @param {GPUDevice} device */
function stateOf(device) {
  const state = devices.get(device) ?? { writes: new Pool(device), turn: Promise.resolve(), filling: new Map() };
  devices.set(device, state);
  return state;
}

/**
 * Queue a write of any length: WebGPU takes multiples of four bytes, so the last word is padded.
 * @param {GPUDevice} device
 * @param {Write} write
 */
export function uploadNow(device, { buffer, offset, data, dataOffset, nbytes }) {
  const bytes = /** @type {ArrayBuffer | Uint8Array} */ (data);
  const source = bytes instanceof Uint8Array ? bytes.buffer : bytes;
  const start = bytes instanceof Uint8Array ? bytes.byteOffset + dataOffset : dataOffset;
  const whole = nbytes & ~3;
  if (whole) device.queue.writeBuffer(buffer, offset, source, start, whole);
  if (whole !== nbytes) {
    const tail = new Uint8Array(4);
    tail.set(new Uint8Array(source, start + whole, nbytes - whole));
    device.queue.writeBuffer(buffer, offset + whole, tail);
  }
}

/** Bytes from which on a run's inputs go through mapped buffers, and of which their sizes are multiples. */
const MAPPED = 64 << 10;

/**
 * Queue a run's writes before the next submit. Writes of 64 KB and more go through mapped buffers, which `queued` copies:
 * `writeBuffer` passes bytes through newly mapped memory each time (602 KB: 0.3 ms more on an H200).
 * @param {GPUDevice} device
 * @param {Write[]} writes
 * @returns {{queued: GPUCommandBuffer[], uploaded: () => void}} `queued`: the first command buffers of the next submit; `uploaded`: to be
 *   called after it, also where there is no submit
 */
export function uploadWith(device, writes) {
  /** @type {GPUCommandEncoder | undefined} */
  let encoder;
  const { writes: pool } = stateOf(device);
  pool.allow(2 * bytesOf(writes)); // those of the run before may be in use
  /** @type {GPUBuffer[]} */
  const used = [];
  for (const write of writes) {
    const { buffer, offset, data, dataOffset, nbytes } = write;
    const staging = nbytes < MAPPED ? null : pool.mapped(MAPPED * Math.ceil(nbytes / MAPPED));
    if (!staging) {
      uploadNow(device, write);
      continue;
    }
    const bytes = data instanceof Uint8Array ? data : new Uint8Array(/** @type {ArrayBuffer} */ (data));
    const padded = (nbytes + 3) & ~3;
    const target = pool.bytesOf(staging).subarray(0, padded);
    target.set(bytes.subarray(dataOffset, dataOffset + nbytes));
    target.fill(0, nbytes);
    staging.unmap();
    encoder ??= device.createCommandEncoder();
    encoder.copyBufferToBuffer(staging, 0, buffer, offset, padded);
    used.push(staging);
  }
  return { queued: encoder ? [encoder.finish()] : [], uploaded: () => used.forEach((staging) => pool.recycle(staging)) };
}

/** @param {Write[]} writes */
function bytesOf(writes) {
  return writes.reduce((sum, { nbytes }) => sum + nbytes, 0);
}

/** Bytes of a staging buffer that small writes of an upload share, of which as many go in one submit; fewer go by `writeBuffer`. */
const SHARED = 1 << 19;
const SUBMITTED = 8;

/** Staging buffers of an upload have this part of its bytes: what is loaded is on the device, too. */
const SHARE = 16;

/**
 * Queue small writes whose bytes are in memory, packed into staging buffers: `writeBuffer` passes bytes through newly mapped
 * memory each time (20 MB of weights: 22 ms of this thread, 5 through memory that is mapped already; H200).
 * @param {GPUDevice} device
 * @param {Write[]} writes
 * @param {Promise<GPUError | null>[]} scopes gets what error scopes caught
 */
async function uploadShared(device, writes, scopes) {
  const { writes: pool } = stateOf(device);
  /** @type {GPUBuffer[]} */
  const used = [];
  /** @type {{from: number, offset: number, to: GPUBuffer, at: number, nbytes: number}[]} */
  const copies = [];
  let left = 0;
  const submit = () => {
    scopes.push(...guarded(device, () => {
      for (const staging of used) staging.unmap();
      const encoder = device.createCommandEncoder();
      for (const { from, offset, to, at, nbytes } of copies.splice(0)) encoder.copyBufferToBuffer(used[from], offset, to, at, nbytes);
      device.queue.submit([encoder.finish()]);
    }));
    for (const staging of used.splice(0)) pool.recycle(staging);
    left = 0;
  };
  for (const write of writes) {
    const { buffer, offset, nbytes } = write;
    for (let at = 0; at < nbytes;) {
      if (!left) {
        if (used.length === SUBMITTED) submit();
        let staging = pool.mapped(SHARED);
        if (!staging) {
          if (used.length) submit();
          staging = await pool.toWrite(SHARED);
        }
        used.push(staging);
        left = SHARED;
      }
      const target = pool.bytesOf(used[used.length - 1]);
      const length = Math.min(left, nbytes - at);
      const padded = (length + 3) & ~3;
      const start = SHARED - left;
      fillNow(write, at, target.subarray(start, start + length));
      target.fill(0, start + length, start + padded);
      copies.push({ from: used.length - 1, offset: start, to: buffer, at: offset + at, nbytes: padded });
      left -= padded;
      at += length;
    }
  }
  if (used.length) submit();
}

/** Whether a write goes through staging buffers. @param {Write} write */
export function isLarge({ data, nbytes }) {
  return nbytes >= LARGE || !isInMemory(data);
}

/** Whether bytes are in memory or are being downloaded to it. @param {Write['data']} data @returns {data is ArrayBuffer | Uint8Array | ArrivingBuffer} */
function isInMemory(data) {
  return data instanceof ArrayBuffer || data instanceof Uint8Array || comesIntoMemory(data);
}

/** A write whose bytes are in one buffer; they are in memory. @param {Write} write @returns {Write} */
function inOne(write) {
  const { data, dataOffset, nbytes } = write;
  if (!comesIntoMemory(data)) return write;
  return { ...write, data: /** @type {Uint8Array} */ (data.partNow(dataOffset, nbytes)), dataOffset: 0 };
}

/**
 * Copy bytes of a write from `at` on, as many as `target` has. They are in this thread's memory.
 * @param {Write} write
 * @param {number} at
 * @param {Uint8Array} target
 */
function fillNow({ data, dataOffset }, at, target) {
  const start = dataOffset + at;
  if (comesIntoMemory(data)) data.copyNow(start, target);
  else if (data instanceof Uint8Array) target.set(data.subarray(start, start + target.length));
  else target.set(new Uint8Array(/** @type {ArrayBuffer} */ (data), start, target.length));
}

/**
 * Copy bytes of a write from `at` on into `target`, also where they are in a Blob, arrive later, or are in Python's memory.
 * @param {Write} write
 * @param {number} at
 * @param {Uint8Array<ArrayBuffer>} target
 */
async function fill(write, at, target) {
  const { data, dataOffset } = write;
  if (isInMemory(data)) fillNow(write, at, target);
  else if (data instanceof Blob) await new BlobReader(data).copyInto(dataOffset + at, target);
  else if ('copyInto' in data) await data.copyInto(dataOffset + at, target);
  else {
    const view = data.getBuffer('u8');
    target.set(view.data.subarray(dataOffset + at, dataOffset + at + target.length));
    view.release();
  }
}

/**
 * Write through staging buffers: while one piece is filled, the GPU process and the GPU move those before it.
 * @param {GPUDevice} device
 * @param {Write} write
 * @param {Promise<GPUError | null>[]} scopes gets what error scopes caught
 */
async function uploadInPieces(device, write, scopes) {
  const { writes } = stateOf(device);
  if (write.nbytes < LARGE) {
    const bytes = new Uint8Array(write.nbytes);
    await fill(write, 0, bytes);
    scopes.push(...guarded(device, () => uploadNow(device, { ...write, data: bytes, dataOffset: 0 })));
    return;
  }
  const size = writes.pieceOf(pieceSize(write.nbytes));
  for (let at = 0; at < write.nbytes; at += size) {
    const length = Math.min(size, write.nbytes - at);
    const padded = (length + 3) & ~3;
    const staging = await writes.toWrite(size);
    const target = writes.bytesOf(staging);
    try {
      await fill(write, at, target.subarray(0, length));
    } catch (error) {
      writes.discard(staging);
      throw error;
    }
    target.fill(0, length, padded);
    scopes.push(...guarded(device, () => {
      staging.unmap();
      const encoder = device.createCommandEncoder();
      encoder.copyBufferToBuffer(staging, 0, write.buffer, write.offset + at, padded);
      device.queue.submit([encoder.finish()]);
    }));
    writes.recycle(staging);
    await null; // the browser sends what is queued when microtasks run
  }
}

/**
 * Whether a run that writes these has to wait for its turn: it is large, or one before it is still being written to the
 * same memory, as where a plan leaves sizes open, or is submitted in slices.
 * @param {GPUDevice} device
 * @param {Write[]} writes
 */
export function waits(device, writes) {
  const { filling } = stateOf(device);
  return longRuns.has(device) || writes.some((write) => isLarge(write) || filling.has(write.buffer));
}

/**
 * Upload those of `writes` that are large, then call `next`, which queues the others and the commands that read them, before any
 * other upload through staging buffers: overlapping runs write the same buffers, one after another.
 * @template T
 * @param {GPUDevice} device
 * @param {Write[]} writes
 * @param {Promise<GPUError | null>[]} scopes gets what error scopes caught
 * @param {() => T} next
 * @param {number} [staging] bytes of staging buffers that it may have
 * @returns {Promise<T>}
 */
export function inTurn(device, writes, scopes, next, staging = bytesOf(writes)) {
  const state = stateOf(device);
  state.writes.allow(staging);
  const buffers = new Set(writes.map(({ buffer }) => buffer));
  for (const buffer of buffers) state.filling.set(buffer, (state.filling.get(buffer) ?? 0) + 1);
  const turn = state.turn.then(async () => {
    for (const write of writes) if (isLarge(write)) await uploadInPieces(device, write, scopes);
    return next();
  }).finally(() => {
    for (const buffer of buffers) {
      const left = (state.filling.get(buffer) ?? 1) - 1;
      if (left) state.filling.set(buffer, left);
      else state.filling.delete(buffer);
    }
  });
  state.turn = turn.catch(() => {});
  return turn;
}

/**
 * The writes in the order of what they take from files, which are read from front to back.
 * @param {Write[]} writes
 * @returns {Write[]}
 */
function inOrder(writes) {
  /** @type {Map<unknown, Blob | ModelFile | BlobReader>} */
  const readers = new Map();
  for (const { data } of writes) {
    if (data instanceof Blob) readers.set(data, new BlobReader(data));
    else if ('there' in data) readers.set(data, /** @type {ModelFile} */ (data));
  }
  if (!readers.size) return writes;
  const from = [...readers.keys()];
  const place = (/** @type {Write} */ { data }) => from.indexOf(data);
  return [...writes].sort((a, b) => place(a) - place(b) || a.dataOffset - b.dataOffset)
    .map((write) => ({ ...write, data: /** @type {Write['data']} */ (readers.get(write.data) ?? write.data) }));
}

/** @param {Write['data']} data @returns {data is ArrivingBuffer} */
function comesIntoMemory(data) {
  return 'copyNow' in data;
}

/**
 * Write all of these, large ones through staging buffers; resolved when everything is queued. A write that waits for bytes
 * of a file gives up its turn meanwhile, so that no other write waits for them.
 * @param {GPUDevice} device
 * @param {Write[]} writes
 */
export async function upload(device, writes) {
  const coming = new Set(writes.flatMap(({ data }) => (comesIntoMemory(data) ? [data] : [])));
  await Promise.all([...coming].map((file) => file.complete()));
  writes = inOrder(writes);
  const staging = bytesOf(writes) / SHARE;
  stateOf(device).writes.allow(staging);
  const small = writes.filter((write) => !isLarge(write));
  const isLittle = small.reduce((sum, { nbytes }) => sum + nbytes, 0) < SHARED;
  /** @type {Promise<GPUError | null>[]} */
  const scopes = [];
  if (isLittle) scopes.push(...guarded(device, () => { for (const write of small) uploadNow(device, inOne(write)); }));
  else await uploadShared(device, small, scopes);
  /** @type {Write[]} */
  let ready = [];
  const write = () => inTurn(device, ready.splice(0), scopes, () => {}, staging);
  for (const one of writes.filter(isLarge)) {
    const end = one.dataOffset + one.nbytes;
    if ('there' in one.data && !(end <= one.data.arrived)) {
      await write();
      await one.data.there(end);
    }
    ready.push(one);
  }
  await write();
  await caught(scopes);
}
