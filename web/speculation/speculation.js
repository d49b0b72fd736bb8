// @ts-check
/**
 * Start runs before they are requested. A caller that generates text waits for logits, selects a token and feeds it; most of that time the
 * GPU is idle. Where the inputs of a session's runs can be predicted from the run before (pattern.js), the most likely token is selected on
 * the GPU, and the next runs are queued after the current one. The caller's inputs are then compared with the predicted ones, byte for
 * byte: a run with equal inputs is answered by the queued one, any other input discards all queued runs.
 *
 * A wrong prediction only costs GPU time: caches with reserved rows got rows after the valid ones, and other outputs have separate memory.
 * After one, a longer streak of predictable runs is required (pace.js).
 *
 * States, and the events that change them:
 *   learning    -> speculating   `follow`: a run was queued, its successor is predictable, and the pace is steady
 *   speculating -> learning      `take` with other inputs or without a queued run; a queued run fails; an input is disposed of;
 *                                no request comes for `IDLE_MS`
 *   any         -> ended         `end`, or the sampler cannot be created
 */

import { enqueue } from '../gpu/player.js';
import { collect, copyOf, resultMemory, stage } from '../gpu/readback.js';
import { RuntimeException } from '../gpu/bounds.js';
import { prepareFirst, readsOf, results } from '../gpu/replay.js';
import { caught, waits } from '../gpu/staging.js';
import { attend } from '../gpu/waiting.js';
import { Choosers } from './chooser.js';
import { later } from './deferred.js';
import { Pace } from './pace.js';
import { Pattern, begins, bestOf, bytesOfId, isEqual, isLogits, numberIn, predicted, tokenOf, typeOfIds } from './pattern.js';

/**
 * @typedef {import('../gpu/replay.js').Fed} Fed
 * @typedef {import('../gpu/replay.js').Prepared} Prepared
 * @typedef {import('../gpu/replay.js').Replay} Replay
 * @typedef {import('../worker/tensors.js').Memory} Memory
 * @typedef {import('../worker/tensors.js').Remote} Remote
 * @typedef {import('./pattern.js').Rules} Rules
 *
 * @typedef {object} Requested the outputs of a run
 * @property {string[] | null} fetches their names; null: all
 * @property {string[]} stay those that stay on the GPU
 *
 * @typedef {object} Token a token selected from a run's logits
 * @property {Remote} ids the id on the GPU
 * @property {number} id NaN until it was read back
 *
 * @typedef {object} Run the run from which the next one is predicted
 * @property {Record<string, Fed>} feeds
 * @property {Map<string, Remote>} staying outputs on the GPU, by name
 * @property {Token} chosen the token selected from its logits
 *
 * @typedef {object} Queued
 * @property {Token} fed the token in its feeds
 * @property {Prepared} prepared
 * @property {Promise<Record<string, any>>} outputs
 * @property {boolean} isComplete whether the outputs were read back
 *
 * @typedef {Run & Queued} Step a queued run that was not requested yet
 *
 * @typedef {object} Speculating
 * @property {'speculating'} name
 * @property {Replay} by
 * @property {Requested} requested
 * @property {Rules} rules rules that predict feeds
 * @property {Step[]} steps queued runs
 * @property {Run} last the last queued or requested run
 * @property {ReturnType<typeof setTimeout>} [timer] ends it without requests
 *
 * @typedef {{name: 'learning'} | Speculating | {name: 'ended'}} State
 */

/** Milliseconds without a request after which queued runs are discarded: the text has ended, and its caches' memory is freed. */
const IDLE_MS = 1_000;

/** The speculative runs of one session. */
export class Speculation {
  #tensors;
  #known;
  #choosers;
  #pattern = new Pattern();
  #pace = new Pace();
  /** @type {State} */
  #state = { name: 'learning' };

  /**
   * @param {import('./chooser.js').Maker} maker
   * @param {{outputs: number, replays: Replay[], spares: Memory[], replaying: Set<Promise<unknown>>}} known the session
   */
  constructor(maker, known) {
    this.#tensors = maker.tensors;
    this.#known = known;
    this.#choosers = new Choosers(maker, () => this.#enter({ name: 'ended' }));
  }

  /** Change the state: the only place that does; discards queued runs. @param {State} next */
  #enter(next) {
    const left = this.#state;
    if (left.name === 'ended') return;
    this.#state = next;
    if (left.name !== 'speculating') return;
    clearTimeout(left.timer);
    this.#dispose(left.last.chosen.ids);
    for (const { prepared, fed } of left.steps) {
      this.#dispose(fed.ids);
      this.#drop(prepared);
    }
  }

  /** Discard queued runs. */
  #stop() {
    this.#enter({ name: 'learning' });
  }

  /**
   * Answer a run by a queued one; null if none has these inputs.
   * @param {Record<string, Fed> | null} feeds
   * @param {Requested} requested
   * @returns {Promise<Record<string, any>> | null}
   */
  take(feeds, requested) {
    const state = this.#state;
    const step = state.name === 'speculating' ? state.steps[0] : undefined;
    if (state.name !== 'speculating' || !step) {
      this.#stop();
      this.#pace.asked(this.#pattern.learn(feeds, keyOf(requested)));
      return null;
    }
    if (!feeds || keyOf(requested) !== keyOf(state.requested) || !isPredicted(step, feeds, state.rules)) {
      this.#stop();
      this.#pace.missed();
      this.#pattern.rules = null;
      return null;
    }
    state.steps.shift();
    this.#dispose(step.fed.ids);
    this.#pace.hit();
    if (step.isComplete) later(() => this.#extend(state));
    else this.#extend(state);
    return this.#delivered(step, feeds, requested);
  }

  /**
   * Queue the successors of a run of `feeds` that was just queued.
   * @param {Prepared} prepared
   * @param {Record<string, Fed>} feeds
   * @param {Requested} requested
   * @returns {Promise<unknown>} resolved when the predicted token is known
   */
  async follow(prepared, feeds, requested) {
    const { replay: by } = prepared;
    const { rules } = this.#pattern;
    if (this.#state.name === 'ended' || !this.#pace.isSteady || !rules || by.kept.some(({ first }) => first)) return;
    this.#stop();
    const made = this.#choose(prepared);
    if (!made) return;
    const { chosen, recording } = made;
    const arrived = this.#send(by.device, [recording], [idsOf(chosen)]);
    /** @type {Speculating} */
    const state = { name: 'speculating', by, requested, rules, steps: [], last: { feeds, staying: stayingOf(prepared), chosen } };
    this.#enter(state);
    this.#extend(state);
    try {
      chosen.id = idIn(await attend(by.device, arrived), chosen);
    } catch {
      this.#stop();
    }
  }

  /**
   * Learn from the results of a run.
   * @param {Record<string, Fed> | null} feeds
   * @param {Requested} requested
   * @param {Record<string, any>} outputs
   * @param {number} ms duration of the run
   */
  ran(feeds, requested, outputs, ms) {
    this.#pattern.last = null;
    if (this.#state.name === 'ended' || !feeds) return;
    const staying = new Map();
    /** @type {[string, any][]} */
    const logits = [];
    for (const [name, value] of Object.entries(outputs)) {
      if (value?.kind === 'gpu') staying.set(name, this.#tensors.get(value.gpu));
      else if (isLogits(value)) logits.push([name, value]);
    }
    if (!staying.size || logits.length !== 1) return;
    const [[name, value]] = logits;
    const { rules } = this.#pattern;
    this.#pace.ran(ms);
    this.#pattern.last = { feeds, requested: keyOf(requested), staying, best: bestOf(value) };
    if (!this.#pace.isFollowing && !begins(feeds)) return;
    const ids = typeOfIds(feeds, rules && tokenOf(rules));
    if (ids) this.expect({ name, type: value.type, dims: [1, 1, value.dims[2]], ids });
  }

  /** Create a sampler for the logits of future runs. @param {import('./chooser.js').Logits} logits */
  expect(logits) {
    if (this.#state.name !== 'ended') this.#choosers.expect(logits);
  }

  /** Record that a tensor was disposed of: a run that was predicted to read it will not be requested. @param {number} number */
  disposed(number) {
    const step = this.#state.name === 'speculating' ? this.#state.steps[0] : undefined;
    if (step && Object.values(step.feeds).some(({ remote }) => remote?.number === number)) this.#stop();
  }

  /** Discard everything. */
  async end() {
    this.#enter({ name: 'ended' });
    await this.#choosers.end();
  }

  /** @param {Step} step @param {Record<string, Fed>} feeds @param {Requested} requested */
  async #delivered({ outputs, prepared, staying, chosen, isComplete }, feeds, requested) {
    try {
      const made = isComplete ? await outputs : await attend(prepared.replay.device, outputs); // includes the wait for earlier runs
      this.#pattern.last = { feeds, requested: keyOf(requested), staying, best: chosen.id };
      return made;
    } catch (error) {
      this.#stop();
      throw error;
    }
  }

  /** Queue steps up to the depth. @param {Speculating} state */
  #extend(state) {
    if (this.#state !== state) return;
    clearTimeout(state.timer);
    state.timer = setTimeout(() => this.#stop(), IDLE_MS);
    while (state.steps.length < this.#pace.depth && this.#queue(state)) { /* one more */ }
  }

  /** Queue one step; false if it needs Python. @param {Speculating} state */
  #queue(state) {
    const { by, requested, rules, last } = state;
    const token = tokenOf(rules);
    const feeds = predicted(rules, last.feeds, last.staying);
    const upload = by.uploads.find(({ name }) => name === token);
    if (!feeds || !upload || !(isHidden(feeds) || inWorker()) || by.sizes?.values?.[token] !== undefined) return false;
    let prepared;
    try {
      prepared = prepareFirst([by], feeds, requested, this.#known, this.#tensors);
    } catch (error) {
      if (!(error instanceof RuntimeException)) throw error;
      return false; // an input is out of range; the requested run reports the error
    }
    if (!prepared) return false;
    const made = waits(by.device, prepared.writes) ? null : this.#choose(prepared);
    if (!made) {
      this.#drop(prepared);
      return false;
    }
    const { chosen } = made;
    const nbytes = bytesOfId(feeds[token].type);
    const recording = {
      ...prepared,
      writes: prepared.writes.filter(({ buffer, offset }) => buffer !== upload.buffer || offset !== upload.offset),
      before: [{ from: last.chosen.ids.memory.buffer, to: upload.buffer, at: upload.offset, nbytes }],
    };
    const reads = readsOf(prepared);
    const began = performance.now();
    /** @type {Step} */
    const step = { feeds, staying: stayingOf(prepared), chosen, fed: last.chosen, prepared, isComplete: false,
      outputs: this.#send(by.device, [recording, made.recording], [...reads, idsOf(chosen)]).then((bytes) => {
        step.isComplete = true;
        this.#pace.arrived(began);
        chosen.id = idIn(bytes.slice(-1), chosen);
        return results(prepared, reads, bytes, this.#tensors);
      }) };
    step.outputs.catch(() => {}); // `take` returns the promise
    state.steps.push(step);
    state.last = step;
    return true;
  }

  /** Return the recording that selects a token from the logits of a run; null if the sampler is for other logits. @param {Prepared} prepared */
  #choose(prepared) {
    const chooser = this.#choosers.current;
    const logits = readsOf(prepared).find(({ name }) => name === chooser?.logits.name);
    if (!chooser || !logits || String(logits.dims) !== String(chooser.logits.dims) || logits.type !== chooser.logits.type) return null;
    const made = chooser.prepare();
    if (!made) return null;
    const { buffer: from, offset, nbytes } = logits;
    const before = [{ from, offset, to: chooser.buffer, at: 0, nbytes: (nbytes + 3) & ~3 }];
    return { chosen: { ids: made.ids, id: NaN }, recording: { ...made.prepared, before } };
  }

  /**
   * Queue recordings, then reads.
   * @param {GPUDevice} device
   * @param {(Prepared & {before: import('../gpu/readback.js').Copy[]})[]} recordings
   * @param {import('../gpu/readback.js').Read[]} reads
   * @returns {Promise<ArrayBuffer[]>} the bytes of each read
   */
  #send(device, recordings, reads) {
    const pieces = stage(device, reads);
    const scopes = enqueue(device, recordings, pieces.map(copyOf));
    const bytes = reads.map(({ nbytes }) => resultMemory.take(nbytes).bytes);
    const arrived = Promise.all([caught(scopes), ...pieces.map((piece) => collect(device, piece, bytes))])
      .then(() => {
        resultMemory.taken(reads.map(({ nbytes }) => nbytes));
        return bytes.map(({ buffer }) => buffer);
      }, (error) => {
        for (const { replay } of recordings) replay.live = false; // the next run uses Python, which reports the cause
        for (const { staging, done } of pieces) if (!done) staging.destroy();
        throw error;
      }).finally(() => this.#known.replaying.delete(arrived));
    this.#known.replaying.add(arrived);
    arrived.catch(() => {});
    return arrived;
  }

  /** @param {Remote} tensor */
  #dispose({ number }) {
    this.#tensors.dispose(number);
  }

  /** Release the outputs of a run that is not delivered. @param {Prepared} prepared */
  #drop({ staying }) {
    for (const { tensor } of staying) this.#dispose(tensor);
  }
}

/** @param {Requested} requested */
const keyOf = ({ fetches, stay }) => JSON.stringify([fetches, stay]);

/** @param {Prepared} prepared */
const stayingOf = ({ staying }) => new Map(staying.map(({ name, tensor }) => [name, tensor]));

/** Return whether the caller's feeds are the predicted ones. @param {Step} step @param {Record<string, Fed>} feeds @param {Rules} rules */
function isPredicted({ feeds: wanted, fed }, feeds, rules) {
  const token = tokenOf(rules);
  const names = Object.keys(feeds);
  return names.length === Object.keys(wanted).length && names.every((name) => (
    name === token ? numberIn(feeds[name]) === fed.id && String(feeds[name].dims) === String(wanted[name].dims)
      && feeds[name].type === wanted[name].type
      : isEqual(wanted[name], feeds[name])));
}

/** Return the read of a token's id. @param {Token} token */
function idsOf({ ids: { type, memory } }) {
  return { buffer: memory.buffer, offset: 0, nbytes: bytesOfId(type) };
}

/** @param {ArrayBuffer[]} bytes @param {Token} token */
function idIn([bytes], { ids: { type } }) {
  return type === 'int64' ? Number(new BigInt64Array(bytes)[0]) : new Int32Array(bytes)[0];
}

/** Return whether pages cannot write to the inputs' memory: it has reserved rows. @param {Record<string, Fed>} feeds */
function isHidden(feeds) {
  return Object.values(feeds).every(({ remote }) => !remote || remote.memory.reserved);
}

/** Return whether no page shares this thread, and with it the buffers of tensors. */
const inWorker = () => typeof document === 'undefined';
