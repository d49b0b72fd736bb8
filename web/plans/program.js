// @ts-check
/**
 * A plan on a device: buffers, uploaded weights, pipelines, computed constants, and the replays that player.js runs.
 */

import { bufferOf } from '../gpu/buffers.js';
import { compileWithFallback } from '../gpu/fallback.js';
import { drop, hold } from '../gpu/held.js';
import { play } from '../gpu/player.js';
import { commandOf } from '../gpu/recording.js';
import { ordered, repeat } from '../gpu/repeated.js';
import { caught, guarded } from '../gpu/staging.js';
import { allocatedBytes } from './allocated.js';
import { Constants } from './constants.js';
import { mostWorkgroups } from './plan.js';
import { seenOf } from './seen.js';
import { uploadConstants } from './weights.js';

/** @typedef {import('./plan.js').Saved} Saved */
/** @typedef {import('./plan.js').SavedPlan} SavedPlan */
/** @typedef {import('./plan.js').Region} Region */
/** @typedef {{header: Saved, sections: Uint8Array<ArrayBuffer>}} Opened */
/** @typedef {import('../gpu/replay.js').Replay} Replay */
/** @typedef {{program: import('./plan.js').Program, seen: Pick<Replay, 'uploads' | 'unread' | 'bounds' | 'downloads' | 'inputs' | 'outputs' | 'kept' | 'values' | 'scalars' | 'sizes' | 'live'>, made: Promise<Replay> | null}} Entry */

export class Program {
  /** Everything on the GPU. @type {Set<GPUBuffer>} */
  #held = new Set();
  #isReleased = false;
  /** By the number of their shader. @type {Map<number, Promise<GPUComputePipeline>>} */
  #pipelines = new Map();
  #constants;
  /** Each plan: the feeds that it is for, and its replay once it was requested. @type {Entry[]} */
  entries = [];
  /** Milliseconds of `create_ms`, and until pipelines, weights and computed constants were there. @type {Record<string, number>} */
  timings = {};

  /** @param {GPUDevice} device @param {Opened} plan @param {import('../pyruntime.js').AdapterInfo} adapter */
  constructor(device, plan, adapter) {
    this.device = device;
    this.plan = plan;
    this.adapter = adapter;
    this.#constants = new Constants(plan.header, {
      allocate: (sizes, label) => this.#guarded(() => sizes.map((nbytes) => this.#buffer(nbytes, label))),
      free: (buffer) => this.#drop(buffer),
      compute: (plans, results) => this.#compute(plans, results),
    });
    for (const program of plan.header.programs) this.entries.push({ program, seen: seenOf(program, plan.sections), made: null });
  }

  /** Bytes that it takes on the GPU with the memory of the plan that is used first. */
  get nbytes() {
    const { plan, computed, inputs, outputs } = this.entries[this.entries.length - 1].program;
    const others = new Set([...Object.keys(computed), ...inputs, ...outputs]);
    const made = plan.external.filter(({ name }) => !others.has(name)).map(({ region }) => region[3]);
    return [...plan.arenas, ...made].reduce((sum, nbytes) => sum + nbytes, this.#constants.nbytes);
  }

  /**
   * @param {(string | Blob | ArrayBuffer)[]} sources the model, and each of the plan's `files`
   * @param {(loaded: number, total: number) => void} report
   * @param {AbortSignal} [signal]
   * @param {Record<string, string>} [tags] strong ETags of files that had the plan's hashes
   */
  async prepare(sources, report, signal, tags) {
    const { header } = this.plan;
    const began = performance.now();
    const done = (/** @type {string} */ part) => { this.timings[`${part}_ms`] = performance.now() - began; };
    try {
      const last = this.entries[this.entries.length - 1];
      const plans = [...header.computed, last.program.plan];
      // First: the browser answers when it is done with what it was asked before, and pipelines take long.
      await this.#constants.begin();
      const compiled = this.#guarded(() => Promise.all(plans.flatMap((plan) => this.#compile(plan))));
      compiled.then(() => done('pipelines'), () => {}); // awaited when the weights are there
      this.#compileOthers();
      await uploadConstants(this.device, this.plan, this.#constants, sources, report, signal, tags);
      done('weights');
      await compiled;
      await this.#constants.end();
      done('computed');
      await this.replay(last);
    } catch (error) {
      this.release();
      throw error;
    }
  }

  /** Compile the pipelines of a decoder's other entries, too: a prompt's run is followed by a token's. */
  #compileOthers() {
    const stay = this.entries.filter(({ program: { inputs, outputs } }) => inputs.length + outputs.length);
    if (stay.length < 2) return;
    this.#guarded(() => Promise.all(stay.flatMap(({ program }) => this.#compile(program.plan)))).catch(() => {}); // reported by their runs
  }

  /** The replay of an entry: memory and pipelines, created at the first request. @param {Entry} entry */
  replay(entry) {
    entry.made ??= this.#replay(entry.program);
    return entry.made;
  }

  /** The session's `summary`, of the program used last. @returns {import('../pyruntime.js').Summary} */
  summary() {
    const { nodes, memory: [, bound, without], commands, shaders } = this.entries[this.entries.length - 1].program.plan;
    return {
      nodes: nodes.map(([name, op_type, domain, placement, reason, kernels]) => (
        { name, op_type, domain, placement, reason: placement === 'gpu' ? '' : reason, kernels })),
      memory: {
        peak: this.#bytesOf('arena'),
        lower_bound: bound,
        total_without_reuse: without,
        weights: this.#bytesOf('weights') + this.#bytesOf('computed'),
        allocated: allocatedBytes(this.device),
      },
      dispatches: commands.length,
      pipelines: new Set(shaders).size,
      adapter: this.adapter,
      providers: ['WebGpuExecutionProvider', 'CPUExecutionProvider'],
      timings: this.timings,
      warnings: [],
    };
  }

  /** @template T @param {() => T | Promise<T>} work @returns {Promise<T>} */
  async #guarded(work) {
    /** @type {any} */
    let result;
    const scopes = guarded(this.device, () => { result = work(); });
    await caught(scopes);
    return result;
  }

  /** @param {string} label */
  #bytesOf(label) {
    return [...this.#held].reduce((sum, buffer) => sum + (buffer.label === label ? buffer.size : 0), 0);
  }

  /** @param {number} nbytes @param {string} label */
  #buffer(nbytes, label) {
    if (this.#isReleased) throw new Error('the session was released');
    const buffer = hold(this.device, bufferOf(this.device, Math.max(nbytes, 256), label));
    this.#held.add(buffer);
    return buffer;
  }

  /** @param {GPUBuffer} buffer */
  #drop(buffer) {
    if (this.#held.delete(buffer)) drop(this.device, buffer);
  }

  /** @param {SavedPlan} plan */
  #compile(plan) {
    return plan.commands.map((command) => this.#pipeline(plan, command));
  }

  /** @param {SavedPlan} plan @param {import('./plan.js').SavedCommand} command */
  #pipeline(plan, { shader }) {
    const number = plan.shaders[shader];
    const made = this.#pipelines.get(number) ?? compileWithFallback(this.device, this.plan.header.shaders[number]).pipeline;
    this.#pipelines.set(number, made);
    return made;
  }

  /**
   * A plan's memory, and its commands with it.
   * @param {SavedPlan} plan
   * @param {Record<string, GPUBuffer>} there tensors that it does not make
   * @param {string[]} brought tensors whose memory runs bring
   */
  async #bind(plan, there, brought = []) {
    const pipelines = await Promise.all(this.#compile(plan));
    return this.#guarded(() => {
      const arenas = plan.arenas.map((nbytes) => this.#buffer(nbytes, 'arena'));
      /** @type {GPUBuffer[]} */
      const external = [];
      for (const { name, region } of plan.external) {
        if (!brought.includes(name)) external[region[1]] = there[name] ?? this.#buffer(region[3], 'resident');
      }
      const [at, nbytes] = plan.params;
      const raw = this.plan.sections.slice(at, at + nbytes);
      const params = nbytes ? this.#buffer(nbytes, 'params') : null;
      if (params) this.device.queue.writeBuffer(params, 0, raw);
      const place = (/** @type {Region} */ [space, index, offset, size]) => {
        if (space === 0) return { buffer: arenas[index], offset, size };
        if (space === 2) return { buffer: external[index], offset, size };
        const [, , , buffer, start] = this.plan.header.constants[plan.constants[index][0]];
        return { buffer: /** @type {GPUBuffer} */ (this.#constants.buffers[buffer]), offset: start + offset, size };
      };
      const made = plan.commands.map(({ regions, params: own, grid, scaled, about }, i) => {
        const parts = regions.map((region) => {
          const part = place(region);
          return { slot: part.buffer ? -1 : region[1], ...part };
        });
        if (params && own) parts.push({ slot: -1, buffer: params, offset: own[0], size: own[1] });
        return commandOf(this.device, pipelines[i], parts, grid, scaled, about[2]);
      });
      return { commands: repeat(made, plan.repeated), place, params, raw, arenas };
    });
  }

  /** Make the constant of each plan. @param {SavedPlan[]} plans @param {GPUBuffer[]} results */
  async #compute(plans, results) {
    const bound = await Promise.all(plans.map((plan, i) => this.#bind(plan, { [plan.external[0].name]: results[i] })));
    const commands = bound.flatMap((one) => ordered(/** @type {import('../gpu/recording.js').Command[]} */ (one.commands), []));
    await play(this.device, commands, [], [], []);
    for (const { params, arenas } of bound) for (const buffer of [...arenas, ...(params ? [params] : [])]) this.#drop(buffer);
  }

  /** @param {import('./plan.js').Program} program @returns {Promise<import('../gpu/replay.js').Replay>} */
  async #replay(program) {
    const { plan, sizes, computed, inputs, outputs } = program;
    const there = Object.fromEntries(Object.entries(computed).map(([name, number]) => [name, this.#constants.computed[number]]));
    const { commands, place, params, raw } = await this.#bind(plan, there, [...inputs, ...outputs]);
    const placed = (/** @type {import('./plan.js').Transfer} */ { name, type, dims, scaled, bits, region }) => {
      const { buffer, offset } = place(region);
      return { name, type, dims, scaled, bits, buffer, offset, most: region[3] };
    };
    const { expressions, patches } = plan;
    const { inputs: given, outputs: left, kept, values } = seenOf(program, this.plan.sections);
    return {
      device: this.device,
      commands,
      uploads: plan.uploads.map(placed),
      unread: plan.unread,
      bounds: plan.bounds,
      downloads: plan.downloads.map(placed),
      numbers: plan.numbers.map(({ transfer, elements, expressions: made }) => {
        const { buffer, offset, bits } = placed(transfer);
        return { elements, expressions: made, bytes: bits / 8, buffer, offset };
      }),
      grids: plan.commands.filter(({ scaled }) => scaled.length)
        .map(({ grid, scaled, regions }) => ({ grid, scaled, most: mostWorkgroups(regions) })),
      sizes: sizes && { ...sizes, expressions, patches, params: raw, buffer: patches.length ? params : null },
      inputs: given,
      outputs: left,
      kept,
      values,
      scalars: program.scalars,
      live: true,
    };
  }

  /** Free everything. */
  release() {
    this.#isReleased = true;
    for (const { seen } of this.entries) seen.live = false;
    for (const buffer of this.#held) this.#drop(buffer);
  }
}
