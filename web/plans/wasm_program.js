// @ts-check
/** A plan as WebAssembly (`pyruntime/compiler/wasm_module.py`): one memory, one module, and synchronous runs without a GPU. */

import { packed } from '../gpu/sizes.js';
import { seenOf } from './seen.js';
import { PAGE } from './wasm_checks.js';
import { uploadConstants } from './weights.js';

/** @typedef {import('./plan.js').Saved} Saved */
/** @typedef {import('./plan.js').Region} Region */
/** @typedef {import('./program.js').Entry} Entry */
/** @typedef {import('../gpu/replay.js').Fed} Fed */
/** Stands in for `Constants` and a device while constants arrive: buffers are addresses. */
class Memory {
  /** @param {Uint8Array} bytes @param {number[]} buffers */
  constructor(bytes, buffers) {
    this.bytes = bytes;
    this.buffers = buffers;
    this.queue = { writeBuffer: this.write.bind(this) };
  }

  /** @param {{address: number}} buffer @param {number} at @param {Uint8Array} data @param {number} [first] @param {number} [count] */
  write({ address }, at, data, first = 0, count = data.length) {
    this.bytes.set(data.subarray(first, first + count), address + at);
  }

  async begin() {}

  /** @param {number} number */
  async bufferFor(number) {
    return { address: this.buffers[number] };
  }

  async arrived() {}
}

export class WasmProgram {
  #module;
  #bytes = new Uint8Array();
  /** @type {Record<string, () => void>} */
  #functions = {};
  /** @type {Entry[]} */
  entries;
  /** Milliseconds of `create_ms`, and until the module, weights and computed constants were there. @type {Record<string, number>} */
  timings = {};

  /** @param {{header: Saved, sections: Uint8Array<ArrayBuffer>}} plan */
  constructor(plan) {
    this.plan = plan;
    this.#module = /** @type {import('./wasm_checks.js').WasmModule} */ (plan.header.module);
    this.entries = plan.header.programs.map((program) => ({ program, seen: seenOf(program, plan.sections), made: null }));
  }

  /** Bytes of its memory. */
  get nbytes() {
    return this.#module.pages * PAGE;
  }

  /**
   * @param {(string | Blob | ArrayBuffer)[]} sources the model, and each of the plan's `files`
   * @param {(loaded: number, total: number) => void} report
   * @param {AbortSignal} [signal]
   * @param {Record<string, string>} [tags] strong ETags of files that had the plan's hashes
   */
  async prepare(sources, report, signal, tags) {
    const began = performance.now();
    const { code: [at, nbytes], pages, buffers } = this.#module;
    const memory = new WebAssembly.Memory({ initial: pages });
    const compiled = WebAssembly.instantiate(this.plan.sections.slice(at, at + nbytes), { env: { memory } });
    compiled.then(() => { this.timings.module_ms = performance.now() - began; }, () => {}); // awaited when the weights are there
    this.#bytes = new Uint8Array(memory.buffer);
    const written = /** @type {any} */ (new Memory(this.#bytes, buffers));
    await uploadConstants(written, this.plan, written, sources, report, signal, tags);
    this.timings.weights_ms = performance.now() - began;
    this.#functions = /** @type {any} */ ((await compiled).instance.exports);
    this.#functions.computed();
    this.timings.computed_ms = performance.now() - began;
  }

  /**
   * Run a program; all of it in this call.
   * @param {Entry} entry
   * @param {Record<string, Fed>} given
   * @returns {Record<string, {type: string, dims: number[], data: ArrayBuffer}>}
   */
  run(entry, given) {
    const number = this.entries.indexOf(entry);
    const { uploads, downloads, numbers } = entry.program.plan;
    const address = (/** @type {Region} */ [, index, offset]) => this.#module.arenas[number][index] + offset;
    for (const { name, region } of uploads) {
      this.#bytes.set(new Uint8Array(/** @type {ArrayBuffer} */ (given[name].data)), address(region));
    }
    for (const { transfer: { region, bits }, elements, expressions } of numbers) {
      this.#bytes.set(new Uint8Array(packed({ elements, expressions, bytes: bits / 8 }, [])), address(region));
    }
    this.#functions[`run${number}`]();
    return Object.fromEntries(downloads.map(({ name, type, bits, dims, region }) => {
      const [at, size] = [address(region), Math.ceil((dims.reduce((product, dim) => product * dim, 1) * bits) / 8)];
      return [name, { type, dims, data: this.#bytes.slice(at, at + size).buffer }];
    }));
  }

  /** The session's `summary`, of the program used last. @returns {import('../pyruntime.js').Summary} */
  summary() {
    const { nodes, memory: [peak, bound, without, weights], commands } = this.entries[this.entries.length - 1].program.plan;
    return {
      nodes: nodes.map(([name, op_type, domain, placement, reason, kernels]) => (
        { name, op_type, domain, placement: placement === 'gpu' ? 'host' : placement, reason: placement === 'gpu' ? 'the plan is for WebAssembly' : reason, kernels })),
      memory: { peak, lower_bound: bound, total_without_reuse: without, weights, allocated: {} },
      dispatches: commands.length,
      pipelines: 0,
      adapter: { vendor: '', architecture: '', device: '', description: '' },
      providers: ['CPUExecutionProvider'],
      timings: this.timings,
      warnings: [],
    };
  }

  /** Free the memory. */
  release() {
    for (const { seen } of this.entries) seen.live = false;
    this.#bytes = new Uint8Array();
    this.#functions = {};
  }
}
