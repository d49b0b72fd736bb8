// @ts-check
/**
 * Runs that begin before they are asked for. A caller that writes text waits for logits, picks a token and feeds it: for most
 * of that time the GPU has nothing to do. Where a session's runs were seen to follow from one another (pattern.js), the likeliest
 * token is chosen on the GPU, and the next runs are queued behind the one that is under way. What a caller then feeds is compared
 * with what was predicted, every byte of it: equal, and the run has been made already; else what was begun is forgotten.
 *
 * Nothing is lost by a wrong guess but the GPU's time: caches in memory with room got rows behind those that count for anybody,
 * other outputs memory of their own. After one, more runs must follow from one another before it is tried again.
 */

import { enqueue } from '../gpu/player.js';
import { collect, copyOf, resultMemory, stage } from '../gpu/readback.js';
import { matches, prepare, readsOf, results } from '../gpu/replay.js';
import { caught, waits } from '../gpu/staging.js';
import { attend } from '../gpu/waiting.js';
import { Chooser } from './chooser.js';
import { later } from './deferred.js';
import { DEPTH, Pace } from './pace.js';
import { begins, bestOf, bytesOfId, predicted, isEqual, isLogits, learned, numberIn, tokenOf, typeOfIds } from './pattern.js';

/**
 * @typedef {import('../gpu/replay.js').Fed} Fed
 * @typedef {import('../gpu/replay.js').Prepared} Prepared
 * @typedef {import('../gpu/replay.js').Replay} Replay
 * @typedef {import('../worker/tensors.js').Memory} Memory
 * @typedef {import('../worker/tensors.js').Remote} Remote
 * @typedef {import('./chooser.js').Logits} Logits
 * @typedef {import('./chooser.js').Maker} Maker
 * @typedef {import('./pattern.js').Rules} Rules
 * @typedef {import('./pattern.js').Seen} Seen
 *
 * @typedef {object} Requested which outputs, and where they are to be
 * @property {string[] | null} fetches
 * @property {string[]} stay
 *
 * @typedef {object} Token that a run's logits gave
 * @property {Remote} ids on the GPU
 * @property {number} id NaN until it has arrived
 *
 * @typedef {object} Step a run that nobody has asked for yet
 * @property {Record<string, Fed>} feeds
 * @property {Token} fed the token among them
 * @property {Token} chosen behind it
 * @property {Prepared} prepared
 * @property {Promise<Record<string, any>>} outputs
 * @property {boolean} there whether they have arrived
 *
 * @typedef {object} Last what the next step follows
 * @property {Replay} by
 * @property {Requested} asked
 * @property {Record<string, Fed>} feeds
 * @property {Map<string, Remote>} staying
 * @property {Token} chosen
 */

/** Milliseconds without a run after which what was begun is given up: a text has ended, and its caches' memory is wanted. */
const IDLE_MS = 1_000;

/** Of one session. */
export class Speculation {
  #maker;
  #known;
  /** @type {Seen | null} */
  #before = null;
  /** @type {Rules | null} */
  #rules = null;
  #pace = new Pace();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #idle;
  /** @type {Chooser | null} */
  #chooser = null;
  /** @type {Promise<unknown> | null} */
  #making = null;
  /** @type {Step[]} */
  #steps = [];
  /** @type {Last | null} */
  #last = null;
  #ended = false;

  /**
   * @param {Maker} maker
   * @param {{outputs: number, replays: Replay[], spares: Memory[], replaying: Set<Promise<unknown>>}} known
   */
  constructor(maker, known) {
    this.#maker = maker;
    this.#known = known;
  }

  /**
   * The outputs of a run that has been begun already; null where this is none.
   * @param {Record<string, Fed> | null} feeds
   * @param {Requested} asked
   * @returns {Promise<Record<string, any>> | null}
   */
  take(feeds, asked) {
    const [step] = this.#steps;
    if (!step) {
      this.#learn(feeds, asked);
      return null;
    }
    if (!feeds || !isSameAsked(asked, this.#last?.asked) || !this.#isPredicted(step, feeds)) {
      this.#forget();
      this.#pace.missed();
      this.#rules = null;
      return null;
    }
    this.#steps.shift();
    this.#dispose(step.fed);
    this.#pace.hit();
    if (step.there) later(() => this.#extend());
    else this.#extend();
    return this.#delivered(step, feeds, asked);
  }

  /**
   * A run of `feeds` was queued just now: queue what will follow it.
   * @param {Prepared} prepared
   * @param {Record<string, Fed>} feeds
   * @param {Requested} asked
   * @returns {Promise<unknown>} resolved when it is known what token is predicted
   */
  async follow(prepared, feeds, asked) {
    if (this.#ended || !this.#pace.isSteady || !this.#chooser || !this.#rules) return;
    const { replay: by } = prepared;
    const place = this.#place(prepared);
    if (!place || by.kept.some(({ first }) => first)) return;
    this.#forget();
    const chosen = this.#choose(place);
    if (!chosen) return;
    const { token, recording } = chosen;
    const arrived = this.#send(by.device, [recording], [idsOf(token)]);
    const staying = new Map(prepared.staying.map(({ name, tensor }) => [name, tensor]));
    this.#last = { by, asked, feeds, staying, chosen: token };
    this.#extend();
    try {
      [token.id] = numbersOf(await attend(by.device, arrived), token);
    } catch {
      this.#forget();
    }
  }

  /**
   * A run has ended: what may follow it is looked for.
   * @param {Record<string, Fed> | null} feeds
   * @param {Requested} asked
   * @param {Record<string, any>} outputs
   * @param {number} ms
   */
  ran(feeds, asked, outputs, ms) {
    this.#before = null;
    if (this.#ended || !feeds) return;
    const staying = new Map();
    /** @type {[string, any][]} */
    const logits = [];
    for (const [name, value] of Object.entries(outputs)) {
      if (value?.kind === 'gpu') staying.set(name, this.#maker.tensors.get(value.gpu));
      else if (isLogits(value)) logits.push([name, value]);
    }
    if (!staying.size || logits.length !== 1) return;
    const [[name, value]] = logits;
    this.#pace.ran(ms);
    this.#before = { feeds, asked: keyOf(asked), staying, best: bestOf(value) };
    if (!this.#pace.isFollowing && !begins(feeds)) return;
    const ids = typeOfIds(feeds, this.#rules && tokenOf(this.#rules));
    if (ids) this.expect({ name, type: value.type, dims: [1, 1, value.dims[2]], ids });
  }

  /** A tensor is disposed: what was predicted to be fed it will not be asked for. @param {number} number */
  disposed(number) {
    const [step] = this.#steps;
    if (step && Object.values(step.feeds).some(({ remote }) => remote?.number === number)) this.#forget();
  }

  /** No more. */
  async end() {
    this.#ended = true;
    clearTimeout(this.#idle);
    this.#forget();
    await this.#making;
    const chooser = this.#chooser;
    this.#chooser = null;
    await chooser?.release();
  }

  /** @param {Record<string, Fed> | null} feeds @param {Requested} asked */
  #learn(feeds, asked) {
    const before = this.#before;
    const rules = feeds && before && before.asked === keyOf(asked) ? learned(this.#rules, before, feeds) : null;
    this.#rules = rules && tokenOf(rules) ? rules : null;
    this.#pace.asked(this.#rules !== null);
    this.#before = null;
  }

  /** @param {Step} step @param {Record<string, Fed>} feeds */
  #isPredicted({ feeds: wanted, fed }, feeds) {
    const token = tokenOf(/** @type {Rules} */ (this.#rules));
    const names = Object.keys(feeds);
    return names.length === Object.keys(wanted).length && names.every((name) => (
      name === token ? numberIn(feeds[name]) === fed.id && String(feeds[name].dims) === String(wanted[name].dims)
        && feeds[name].type === wanted[name].type
        : isEqual(wanted[name], feeds[name])));
  }

  /** @param {Step} step @param {Record<string, Fed>} feeds @param {Requested} asked */
  async #delivered(step, feeds, asked) {
    const { outputs, prepared, chosen, there } = step;
    const staying = new Map(prepared.staying.map(({ name, tensor }) => [name, tensor]));
    try {
      const made = there ? await outputs : await attend(prepared.replay.device, outputs); // how long is not as for a run alone
      this.#before = { feeds, asked: keyOf(asked), staying, best: chosen.id };
      return made;
    } catch (error) {
      this.#forget();
      throw error;
    }
  }

  /** Queue steps up to the depth. */
  #extend() {
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => this.#forget(), IDLE_MS);
    while (this.#last && this.#steps.length < this.#pace.depth && this.#queue(this.#last)) { /* one more */ }
  }

  /**
   * Queue one step; false where it takes Python.
   * @param {Last} last
   */
  #queue({ by, asked, feeds, staying, chosen }) {
    const rules = /** @type {Rules} */ (this.#rules);
    const token = tokenOf(rules);
    const next = predicted(rules, feeds, staying);
    const upload = by.uploads.find(({ name }) => name === token);
    if (!next || !upload || !(isHidden(next) || inWorker()) || by.sizes?.values?.[token] !== undefined) return false;
    const sizes = matches(by, next, asked.fetches, this.#known.outputs, asked.stay);
    const prepared = sizes && prepare(by, next, sizes, this.#maker.tensors, this.#known.spares);
    if (!prepared) return false;
    const place = this.#place(prepared);
    const behind = waits(by.device, prepared.writes) || !place ? null : this.#choose(place);
    if (!behind) {
      this.#drop(prepared);
      return false;
    }
    const nbytes = bytesOfId(next[token].type);
    const recording = {
      ...prepared,
      writes: prepared.writes.filter(({ buffer, offset }) => buffer !== upload.buffer || offset !== upload.offset),
      before: [{ from: chosen.ids.memory.buffer, to: upload.buffer, at: upload.offset, nbytes }],
    };
    const reads = readsOf(prepared);
    const read = [...reads, idsOf(behind.token)];
    const began = performance.now();
    const step = { feeds: next, fed: chosen, chosen: behind.token, prepared, there: false,
      outputs: this.#send(by.device, [recording, behind.recording], read).then((bytes) => {
        step.there = true;
        this.#pace.arrived(began);
        [step.chosen.id] = numbersOf([bytes[reads.length]], step.chosen);
        return results(prepared, reads, bytes, this.#maker.tensors);
      }) };
    step.outputs.catch(() => {}); // who takes it hears it
    this.#steps.push(step);
    const made = new Map(prepared.staying.map(({ name, tensor }) => [name, tensor]));
    this.#last = { by, asked, feeds: next, staying: made, chosen: behind.token };
    return true;
  }

  /** The token that a copy of these logits gives, and how it is made. @param {{buffer: GPUBuffer, offset: number, nbytes: number}} place */
  #choose({ buffer, offset, nbytes }) {
    const made = this.#chooser?.prepare();
    if (!made || !this.#chooser) return null;
    const before = [{ from: buffer, offset, to: this.#chooser.buffer, at: 0, nbytes: (nbytes + 3) & ~3 }];
    return { token: { ids: made.ids, id: NaN }, recording: { ...made.prepared, before } };
  }

  /** Where the logits of a run are, if they are such as the chooser takes. @param {Prepared} prepared */
  #place(prepared) {
    const logits = this.#chooser?.logits;
    const found = readsOf(prepared).find(({ name }) => name === logits?.name);
    return found && String(found.dims) === String(logits?.dims) && found.type === logits?.type ? found : null;
  }

  /**
   * Queue recordings and what is read behind them; the bytes of each, when they have arrived.
   * @param {GPUDevice} device
   * @param {(Prepared & {before: import('../gpu/readback.js').Copy[]})[]} recordings
   * @param {import('../gpu/readback.js').Read[]} reads
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
        for (const { replay } of recordings) replay.live = false; // Python finds out why
        for (const { staging, done } of pieces) if (!done) staging.destroy();
        throw error;
      }).finally(() => this.#known.replaying.delete(arrived));
    this.#known.replaying.add(arrived);
    arrived.catch(() => {});
    return arrived;
  }

  /** Give back what was begun. */
  #forget() {
    if (this.#last) this.#dispose(this.#last.chosen);
    for (const { prepared, fed } of this.#steps.splice(0)) {
      this.#dispose(fed);
      this.#drop(prepared);
    }
    this.#last = null;
  }

  /** @param {Token} token */
  #dispose({ ids }) {
    this.#maker.tensors.dispose(ids.number);
  }

  /** @param {Prepared} prepared */
  #drop({ staying }) {
    for (const { tensor } of staying) this.#maker.tensors.dispose(tensor.number);
  }

  /** Logits that runs are going to bring: have ready what chooses by them. @param {Logits} logits */
  expect(logits) {
    if (this.#making || this.#ended || this.#chooser?.suits(logits)) return;
    const stale = this.#chooser;
    this.#chooser = null;
    this.#making = Promise.resolve(stale?.release()).then(() => Chooser.create(this.#maker, logits, DEPTH + 2)).then((made) => {
      this.#chooser = made;
    }, () => { this.#ended = true; }).finally(() => { this.#making = null; });
  }
}

/** @param {Requested} asked */
const keyOf = ({ fetches, stay }) => JSON.stringify([fetches, stay]);

/** @param {Requested} some @param {Requested | undefined} others */
const isSameAsked = (some, others) => others !== undefined && keyOf(some) === keyOf(others);

/** How a token's id is read. @param {Token} token */
function idsOf({ ids: { type, memory } }) {
  return { buffer: memory.buffer, offset: 0, nbytes: bytesOfId(type) };
}

/** @param {ArrayBuffer[]} bytes @param {Token} token */
function numbersOf([bytes], { ids: { type } }) {
  return type === 'int64' ? Array.from(new BigInt64Array(bytes), Number) : [...new Int32Array(bytes)];
}

/** Whether pages cannot write to what is fed: it has room behind it. @param {Record<string, Fed>} feeds */
function isHidden(feeds) {
  return Object.values(feeds).every(({ remote }) => !remote || remote.memory.reserved);
}

/** Whether no page shares this thread, and with it the buffers of tensors. */
const inWorker = () => typeof document === 'undefined';
