// @ts-check
/** Where a text's tokens come from: chosen on the GPU, several queued ahead, or here, one after the other. */

import { InferenceSession } from '../session.js';
import { draw, largest, logSumExp, penalize, penalizes, uniform } from './sampling.js';
import { outputsOf, samplerOf, settingsOf, countsOf } from './samplers.js';

/** @typedef {import('./decoder.js').Decoder} Decoder */
/** @typedef {import('./decoder.js').Turn} Turn */
/** @typedef {import('./sampling.js').Candidate} Candidate */
/**
 * @typedef {object} Wanted
 * @property {import('./sampling.js').Rules} rules
 * @property {number} seed
 * @property {number} most tokens
 * @property {number} top how many of the likeliest are named
 * @property {boolean} logs whether tokens have their `logProbability`
 * @property {AbortSignal} ended
 * @property {((logits: Float32Array, ids: readonly number[]) => void) | undefined} processLogits
 * @property {import('./window.js').Window} window what the model sees of the text
 *
 * @typedef {object} Token
 * @property {number} id
 * @property {number | undefined} logProbability
 * @property {Candidate[] | undefined} top
 * @property {number} model milliseconds
 * @property {number} sampling milliseconds
 * @property {number} computed tokens that the model was given
 *
 * @typedef {object} Batch of tokens that is queued
 * @property {Promise<import('../protocol.js').DecodedTokens & {at: number}>} answer and when it came
 * @property {number} began when it was asked for
 * @property {number} count
 *
 * @typedef {object} Tokens
 * @property {boolean} queued whether they are chosen on the GPU
 * @property {() => Promise<Token>} next
 * @property {(whole: boolean) => Promise<void>} end
 *    leaves the turn with what is before the last token, or with nothing where the text is not whole
 */

/**
 * How far ahead of its ids the GPU is. `ms`: of its work that a batch is to be; `most`: tokens of a batch (web/decoding.js has
 * room for 16); `batches` that are queued: the GPU works on one while the ids of the other are on their way.
 */
export const pace = { ms: 12, most: 16, batches: 2 };

/** Likeliest tokens that are named at most: more are found here. */
const MOST_NAMED = 256;

/** @implements {Tokens} */
export class HostTokens {
  queued = false;
  #decoder;
  #turn;
  #ids;
  #wanted;
  #prompt;
  /** Tokens of the text that the model has not seen at the last one. */
  #lost;

  /**
   * @param {Decoder} decoder
   * @param {Turn} turn that has what the window begins with
   * @param {readonly number[]} ids of prompt and text so far
   * @param {number} prompt how many are the prompt's
   * @param {Wanted} wanted
   */
  constructor(decoder, turn, ids, prompt, wanted) {
    this.#decoder = decoder;
    this.#turn = turn;
    this.#ids = [...ids];
    this.#prompt = prompt;
    this.#wanted = wanted;
    this.#lost = wanted.window.dropped(ids.length);
  }

  /** @returns {Promise<Token>} */
  async next() {
    const { rules, seed, top: named, logs, ended, processLogits, window } = this.#wanted;
    const count = this.#ids.length - this.#prompt + 1;
    const begin = performance.now();
    const context = window.context(this.#ids);
    if (this.#lost !== this.#ids.length - context.length) {
      this.#lost = this.#ids.length - context.length;
      await this.#decoder.rewind(this.#turn, context);
    }
    const given = context.slice(this.#turn.ids.length);
    const logits = await this.#decoder.step(this.#turn, given, ended);
    const middle = performance.now();
    const whole = named > 0 || logs ? logSumExp(logits) : 0;
    const top = named > 0 ? largest(logits, named).map((id) => ({ id, logProbability: logits[id] - whole })) : undefined;
    const changed = processLogits || penalizes(rules) ? logits.slice() : logits;
    penalize(changed, rules, this.#ids, this.#prompt);
    processLogits?.(changed, this.#ids);
    const id = draw(changed, rules, () => uniform(seed, count));
    this.#ids.push(id);
    const logProbability = logs ? logits[id] - whole : undefined;
    return { id, logProbability, top, model: middle - begin, sampling: performance.now() - middle, computed: given.length };
  }

  async end() {}
}

/** @implements {Tokens} */
export class QueuedTokens {
  queued = true;
  #decoder;
  #turn;
  #ids;
  #wanted;
  #prompt;
  #sampler;
  #options;
  #behind;
  /** The loop's number while there is one. */
  #loop = 0;
  /** Tokens of the text that the loop does not see. */
  #lost = 0;
  /** How many tokens are asked for before the window is full, or there are enough. */
  #limit = 0;
  /** @type {Batch[]} */
  #batches = [];
  /** That have arrived, and were not asked for. @type {Token[]} */
  #tokens = [];
  #size = 1;
  #asked = 0;
  /** When the last batch arrived. */
  #arrived = 0;
  /** @type {Promise<void> | null} */
  #end = null;

  /**
   * Use `QueuedTokens.open`.
   * @param {Decoder} decoder
   * @param {Turn} turn
   * @param {readonly number[]} ids
   * @param {Wanted} wanted
   * @param {{sampler: InferenceSession, options: import('./samplers.js').SamplerOptions}} chooser
   */
  constructor(decoder, turn, ids, wanted, { sampler, options }) {
    this.#decoder = decoder;
    this.#turn = turn;
    this.#ids = [...ids];
    this.#prompt = ids.length;
    this.#wanted = wanted;
    this.#sampler = sampler;
    this.#options = options;
    this.#behind = /** @type {NonNullable<ReturnType<typeof InferenceSession.behind>>} */ (InferenceSession.behind(decoder.session));
  }

  /**
   * Null where tokens cannot be chosen on the GPU: the caller changes logits, or the model is not for it.
   * @param {Decoder} decoder
   * @param {Turn} turn that has what the prompt begins with
   * @param {readonly number[]} ids of the prompt
   * @param {Wanted} wanted
   */
  static async open(decoder, turn, ids, wanted) {
    const { types } = decoder;
    const { rules, top, logs, processLogits } = wanted;
    if (processLogits || !types || top > MOST_NAMED || (penalizes(rules) && !types.vocabulary)) return null;
    const options = samplerOf(rules, { top, logs }, types.logits, types.ids);
    const sampler = await decoder.samplers.of(decoder.session, options).catch(({ message }) => {
      console.warn(`pyruntime chooses the tokens of this text on the host: ${message}`);
      return null;
    });
    return sampler && new QueuedTokens(decoder, turn, ids, wanted, { sampler, options });
  }

  /** @returns {Promise<Token>} */
  async next() {
    const token = this.#tokens.shift() ?? await this.#arrive();
    this.#ids.push(token.id);
    return token;
  }

  /** The first token of the next batch. @returns {Promise<Token>} */
  async #arrive() {
    let computed = 1;
    if (this.#loop && !this.#batches.length && this.#asked === this.#limit) await this.#leave(this.#wanted.window.sinks || null);
    if (!this.#loop) {
      if (!this.#asked) this.#arrived = performance.now();
      computed = await this.#begin();
    }
    this.#ask();
    const { answer, began, count } = /** @type {Batch} */ (this.#batches.shift());
    const { ids, logProbabilities, top, grows, at } = await answer;
    const model = (at - this.#arrived) / count;
    const alone = at - Math.max(began, this.#arrived);
    this.#size = grows ? Math.max(1, Math.min(pace.most, Math.round((pace.ms * count) / alone))) : 1;
    this.#arrived = at;
    this.#tokens = ids.map((/** @type {number} */ id, /** @type {number} */ i) => (
      { id, logProbability: logProbabilities[i], top: this.#top(top[i]), model, sampling: 0, computed: i ? 1 : computed }));
    return /** @type {Token} */ (this.#tokens.shift());
  }

  /** @param {{ids: number[], logProbabilities: number[]} | undefined} found */
  #top(found) {
    return found?.ids.slice(0, this.#wanted.top).map((id, i) => ({ id, logProbability: found.logProbabilities[i] }));
  }

  /** Compute what the window has of the text but for its last token, and hand the caches to the loop; how much was new. */
  async #begin() {
    const { rules, ended, window, most } = this.#wanted;
    const context = window.context(this.#ids);
    const last = context.length - 1;
    const computed = context.length - this.#turn.ids.length;
    await this.#decoder.prefill(this.#turn, context.slice(this.#turn.ids.length, last), ended);
    ended.throwIfAborted();
    const sampler = /** @type {NonNullable<ReturnType<typeof InferenceSession.behind>>} */ (InferenceSession.behind(this.#sampler));
    const { vocabulary } = /** @type {NonNullable<Decoder['types']>} */ (this.#decoder.types);
    this.#loop = await this.#behind.owner.call('decode', {
      ...this.#decoder.loop(this.#turn, context[last]),
      sampler: sampler.handle,
      chosen: outputsOf(this.#options),
      settings: settingsOf(this.#options, rules),
      counts: this.#options.penalties ? countsOf(this.#ids, this.#prompt, /** @type {number} */ (vocabulary)) : null,
    });
    this.#turn.dispose();
    this.#lost = this.#ids.length - context.length;
    this.#limit = Math.min(most, this.#asked + window.room(this.#ids.length) + 1);
    return computed;
  }

  /** Queue batches, so that the GPU has work while ids are on their way. */
  #ask() {
    const { seed } = this.#wanted;
    while (this.#batches.length < pace.batches && this.#asked < this.#limit) {
      const count = Math.min(this.#size, this.#limit - this.#asked);
      const first = this.#asked + 1;
      this.#asked += count;
      const draws = this.#options.greedy ? [] : Array.from({ length: count }, (_, i) => uniform(seed, first + i));
      const steps = { decoding: this.#loop, count, draws, confirmed: this.#ids.length - this.#lost - 1 };
      const answer = this.#behind.owner.call('decodeSteps', steps).then((found) => ({ ...found, at: performance.now() }));
      answer.catch(() => {}); // whoever waits for it hears it
      this.#batches.push({ answer, began: performance.now(), count });
    }
  }

  /** @param {boolean} whole */
  end(whole) {
    this.#end ??= this.#finish(whole);
    return this.#end;
  }

  /** @param {boolean} whole */
  async #finish(whole) {
    if (this.#loop) await this.#leave(whole ? this.#ids.length - this.#lost - 1 : null);
  }

  /**
   * End the loop, so that the turn has the first tokens that it has seen; null: nothing. Without a host there is nothing to give
   * back: what ended that is told to who asked for a token.
   * @param {number | null} kept
   */
  async #leave(kept) {
    const decoding = this.#loop;
    this.#loop = 0;
    const caches = await this.#behind.owner.call('decodeEnd', { decoding, kept }).catch(() => ({}));
    this.#decoder.restore(this.#turn, caches, this.#wanted.window.context(this.#ids, this.#lost).slice(0, kept ?? 0));
  }
}
