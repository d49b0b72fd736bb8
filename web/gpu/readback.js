// @ts-check
/** Read results back from the GPU in pieces, through staging buffers (pool.js). */

import { pieceSize } from '../net/pieces.js';
import { drop, hold } from './held.js';
import { Pool } from './pool.js';
import { guarded } from './staging.js';

/**
 * @typedef {object} Read
 * @property {GPUBuffer} buffer
 * @property {number} offset
 * @property {number} nbytes
 *
 * @typedef {object} Piece of a result
 * @property {GPUBuffer} buffer that it is copied from
 * @property {number} offset there
 * @property {number} at its place in the result
 * @property {number} length in bytes
 * @property {number} result which one
 * @property {GPUBuffer} staging
 * @property {boolean} done
 *
 * @typedef {Omit<Piece, 'staging'>} Planned a piece that has no staging buffer yet
 *
 * @typedef {object} Copy from one buffer to another
 * @property {GPUBuffer} from
 * @property {number} [offset] there; default: its beginning
 * @property {GPUBuffer} to
 * @property {number} at
 * @property {number} nbytes
 */

/**
 * Bytes of one result that are read concurrently; later pieces wait for staging buffers to return. Creating a buffer takes
 * longer than reading through it: 0.7 ms a megabyte instead of 0.2 (H200).
 */
const ON_THE_WAY = 16 << 20;

/** Pieces copied to staging buffers in one submit: all of them are there when it is done. */
const COPIES = 4;

/** @type {WeakMap<GPUDevice, Pool>} */
const pools = new WeakMap();

/** @param {GPUDevice} device */
function poolOf(device) {
  const pool = pools.get(device) ?? new Pool(device);
  pools.set(device, pool);
  return pool;
}

/** Where results get their memory: anew, unless another thread has made it ready (memory.js). */
export const resultMemory = {
  /** Zeroed memory; whether its pages are in place. @type {(nbytes: number) => {bytes: Uint8Array<ArrayBuffer>, isReady: boolean}} */
  take: (nbytes) => ({ bytes: new Uint8Array(nbytes), isReady: false }),
  /** Hears that a run has its results, of these sizes. @type {(sizes: number[]) => void} */
  taken: () => {},
};

/** @param {Read} read @param {number} result @returns {Planned[]} */
function cut({ buffer, offset, nbytes }, result) {
  const pieces = [];
  const size = pieceSize(nbytes);
  for (let at = 0; at < nbytes; at += size) {
    pieces.push({ buffer, offset: offset + at, at, length: Math.min(size, nbytes - at), result, done: false });
  }
  return pieces;
}

/** @param {GPUDevice} device @param {Planned} piece @returns {Piece} */
function staged(device, piece) {
  return Object.assign(piece, { staging: poolOf(device).toRead(Math.max(256, 2 ** Math.ceil(Math.log2(piece.length)))) });
}

/**
 * What is read, cut into pieces that each get a staging buffer: a large result is copied out while the rest of it is
 * still on its way.
 * @param {GPUDevice} device
 * @param {Read[]} reads
 */
export function stage(device, reads) {
  return reads.flatMap(cut).map((piece) => staged(device, piece));
}

/** @param {Piece} piece @returns {Copy} */
export const copyOf = ({ buffer, offset, length, staging }) => (
  { from: buffer, offset, to: staging, at: 0, nbytes: (length + 3) & ~3 });

/** @param {GPUCommandEncoder} encoder @param {Copy[]} copies */
export function copyAll(encoder, copies) {
  for (const { from, offset = 0, to, at, nbytes } of copies) encoder.copyBufferToBuffer(from, offset, to, at, nbytes);
}

/**
 * The bytes of `piece`, when they have arrived, into the result it belongs to; its staging buffer goes back.
 * @param {GPUDevice} device
 * @param {Piece} piece
 * @param {Uint8Array[]} results
 */
export async function collect(device, piece, results) {
  const { at, length, result, staging } = piece;
  const padded = (length + 7) & ~7;
  await staging.mapAsync(GPUMapMode.READ, 0, padded);
  results[result].set(new Uint8Array(staging.getMappedRange(0, padded), 0, length), at);
  staging.unmap();
  piece.done = true;
  poolOf(device).keep(staging);
}

/** What one run gives back. */
export class Readback {
  #device;
  /** How large results are set aside on the GPU: the next run may write over them while their pieces wait. @type {Copy[]} */
  #aside = [];
  /** Pieces that have staging buffers. @type {Piece[]} */
  #begun = [];
  /** @type {Planned[]} */
  #waiting = [];

  /** @param {GPUDevice} device @param {Read[]} reads */
  constructor(device, reads) {
    this.#device = device;
    /** Pieces of the results, in the order of their arrival. @type {Planned[]} */
    this.pieces = reads.flatMap((read, result) => cut(read.nbytes > ON_THE_WAY ? this.#setAside(read) : read, result));
    for (const piece of this.pieces) {
      if (piece.at < ON_THE_WAY) this.#begun.push(staged(device, piece));
      else this.#waiting.push(piece);
    }
  }

  /** @param {Read} read @returns {Read} */
  #setAside({ buffer, offset, nbytes }) {
    const size = (nbytes + 3) & ~3;
    const aside = hold(this.#device, this.#device.createBuffer({ label: 'result', size, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST }));
    this.#aside.push({ from: buffer, offset, to: aside, at: 0, nbytes: size });
    return { buffer: aside, offset: 0, nbytes };
  }

  /** Submit the last passes of a run, then the copies of its results. @param {GPUCommandBuffer[]} queued */
  submit(queued) {
    const encoders = [this.#device.createCommandEncoder()];
    copyAll(encoders[0], this.#aside);
    for (let first = 0; first < this.#begun.length; first += COPIES) {
      if (first) encoders.push(this.#device.createCommandEncoder());
      copyAll(encoders[encoders.length - 1], this.#begun.slice(first, first + COPIES).map(copyOf));
    }
    encoders.forEach((encoder, i) => this.#device.queue.submit(i ? [encoder.finish()] : [...queued, encoder.finish()]));
  }

  /**
   * The bytes of all pieces, when they have arrived, into their results.
   * @param {Uint8Array[]} results
   * @param {Promise<GPUError | null>[]} scopes gets what error scopes catch
   */
  async collect(results, scopes) {
    await Promise.all(this.#begun.slice().map(async (begun) => {
      /** @type {Piece | undefined} */
      let piece = begun;
      while (piece) {
        await collect(this.#device, piece, results);
        piece = this.#next(scopes);
      }
    }));
  }

  /** The next piece, on its way now. @param {Promise<GPUError | null>[]} scopes */
  #next(scopes) {
    const waiting = this.#waiting.shift();
    if (!waiting) return undefined;
    const piece = staged(this.#device, waiting);
    this.#begun.push(piece);
    scopes.push(...guarded(this.#device, () => {
      const encoder = this.#device.createCommandEncoder();
      copyAll(encoder, [copyOf(piece)]);
      this.#device.queue.submit([encoder.finish()]);
    }));
    return piece;
  }

  /** Nothing more will be read, be it because something failed. */
  end() {
    this.#waiting = [];
    for (const { staging, done } of this.#begun) if (!done) poolOf(this.#device).discard(staging);
    for (const { to } of this.#aside.splice(0)) drop(this.#device, to);
  }
}
