// @ts-check
/** Sources of a text's tokens: selected on the GPU with several steps queued, or in JavaScript one at a time. */

import { InferenceSession } from '../api/session.js';
import { draw, largest, logSumExp, penalize, penalizes, uniform } from './sampling.js';
import { outputsOf, samplerOf, settingsOf, countsOf } from './samplers.js';

/** @typedef {import('./decoder.js').Decoder} Decoder */
/** @typedef {import('./decoder.js').Turn} Turn */
/** @typedef {import('./sampling.js').Candidate} Candidate */
/**
 * @typedef {object} Wanted
 * @property {import('./sampling.js').Rules} rules
 * @property {number} seed
 * @property {number} most tokens of the text
 * @property {number} top number of most likely tokens to return
 * @property {boolean} logs whether tokens have their `logProbability`
 * @property {AbortSignal} ended
 * @property {((logits: Float32Array, ids: readonly number[]) => void) | undefined} processLogits
 *
 * @typedef {object} Text
 * @property {readonly number[]} ids ids of prompt and text so far, for penalties
 * @property {number} prompt number of ids of the prompt
 *
 * @typedef {object} Token
 * @property {number} id
 * @property {number | undefined} logProbability
 * @property {Candidate[] | undefined} top
 * @property {number} model milliseconds
 * @property {number} sampling milliseconds
 * @property {number} computed tokens computed for this one
 *
 * @typedef {object} Batch a queued batch of tokens
 * @property {Promise<import('../api/protocol.js').DecodedTokens & {at: number}>} answer the result, and its arrival time
 * @property {number} began time when it was queued
 * @property {number} count
 *
 * @typedef {object} Tokens
 * @property {boolean} queued whether the GPU selects them
 * @property {() => Promise<Token>} next
 * @property {(whole: boolean, first?: number) => Promise<void>} end
 *    leaves the turn with what is before the last token, or of it no more than the `first` ones where that takes no copies; with
 *    nothing where the text is not whole
 */

/**
 * How many steps are queued before their ids arrive. `ms`: GPU time of a batch; `most`: tokens in a batch (at most 16, `MOST` of
 * web/worker/token_records.js); `batches`: queued batches, so that the GPU works on one while the ids of the other are read back.
 */
export const pace = { ms: 12, most: 16, batches: 2 };

/** Maximum number of most likely tokens that the GPU returns; more are selected in JavaScript. */
const MOST_NAMED = 256;

/** @implements {Tokens} */
export class HostTokens {
  queued = false;
  #decoder;
  #turn;
  #context;
  #ids;
  #wanted;
  #prompt;

  /**
   * @param {Decoder} decoder
   * @param {Turn} turn
   * @param {readonly number[]} context the tokens that the model sees
   * @param {Text} text
   * @param {Wanted} wanted
   */
  constructor(decoder, turn, context, { ids, prompt }, wanted) {
    this.#decoder = decoder;
    this.#turn = turn;
    this.#context = [...context];
    this.#ids = [...ids];
    this.#prompt = prompt;
    this.#wanted = wanted;
  }

  /** @returns {Promise<Token>} */
  async next() {
    const { rules, seed, top: named, logs, ended, processLogits } = this.#wanted;
    const count = this.#ids.length - this.#prompt + 1;
    const given = this.#context.slice(this.#turn.ids.length);
    const begin = performance.now();
    const logits = await this.#decoder.step(this.#turn, given, ended);
    const middle = performance.now();
    const whole = named > 0 || logs ? logSumExp(logits) : 0;
    const top = named > 0 ? largest(logits, named).map((id) => ({ id, logProbability: logits[id] - whole })) : undefined;
    const changed = processLogits || penalizes(rules) ? logits.slice() : logits;
    penalize(changed, rules, this.#ids, this.#prompt);
    processLogits?.(changed, this.#ids);
    const id = draw(changed, rules, () => uniform(seed, count));
    this.#ids.push(id);
    this.#context.push(id);
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
  #context;
  #text;
  #wanted;
  #most;
  #given;
  #sampler;
  #options;
  #host;
  /** The loop's number, once it has started. */
  #loop = 0;
  /** @type {Batch[]} */
  #batches = [];
  /** Tokens that have arrived and were not returned yet. @type {Token[]} */
  #tokens = [];
  /** Number of leading tokens without rows in the loop's caches. */
  #begin = 0;
  #size = 1;
  /** Whether caches can be truncated in place. */
  #grows = false;
  #asked = 0;
  /** When the last batch arrived, in milliseconds of `performance.now()`. */
  #arrived = 0;
  /** @type {Promise<void> | null} */
  #end = null;

  /**
   * Internal: use `QueuedTokens.open`.
   * @param {Decoder} decoder
   * @param {Turn} turn
   * @param {readonly number[]} context
   * @param {Text} text
   * @param {Wanted} wanted
   * @param {number} most
   * @param {{sampler: InferenceSession, options: import('./samplers.js').SamplerOptions}} chooser
   */
  constructor(decoder, turn, context, text, wanted, most, { sampler, options }) {
    this.#decoder = decoder;
    this.#turn = turn;
    this.#context = [...context];
    this.#given = context.length;
    this.#text = { ids: [...text.ids], prompt: text.prompt };
    this.#most = most;
    this.#wanted = wanted;
    this.#sampler = sampler;
    this.#options = options;
    this.#host = /** @type {NonNullable<ReturnType<typeof InferenceSession.hostOf>>} */ (InferenceSession.hostOf(decoder.session));
  }

  /**
   * Create a source; null if tokens cannot be selected on the GPU: the caller modifies logits, or the model does not support it.
   * @param {Decoder} decoder
   * @param {Turn} turn its caches hold the start of the context
   * @param {readonly number[]} context the tokens that the model sees
   * @param {Text} text
   * @param {Wanted} wanted
   * @param {number} most maximum number of tokens of this context
   */
  static async open(decoder, turn, context, text, wanted, most) {
    const { types } = decoder;
    const { rules, top, logs, processLogits } = wanted;
    if (processLogits || !types || top > MOST_NAMED || (penalizes(rules) && !types.vocabulary)) return null;
    const options = samplerOf(rules, { top, logs }, types.logits, types.ids);
    const sampler = await decoder.samplers.of(decoder.session, options).catch(({ message }) => {
      console.warn(`pyruntime chooses the tokens of this text on the host: ${message}`);
      return null;
    });
    return sampler && new QueuedTokens(decoder, turn, context, text, wanted, most, { sampler, options });
  }

  /** @returns {Promise<Token>} */
  async next() {
    const token = this.#tokens.shift() ?? await this.#arrive();
    this.#context.push(token.id);
    return token;
  }

  /** Wait for the next batch; return its first token. @returns {Promise<Token>} */
  async #arrive() {
    let computed = 1;
    if (!this.#loop) {
      this.#arrived = performance.now();
      computed = this.#given - this.#turn.ids.length;
      await this.#start();
    }
    this.#ask();
    const { answer, began, count } = /** @type {Batch} */ (this.#batches.shift());
    const { ids, logProbabilities, top, grows, at } = await answer;
    const model = (at - this.#arrived) / count;
    const alone = at - Math.max(began, this.#arrived);
    this.#grows = grows;
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

  /** Compute the context except its last token, and pass its caches to the loop. */
  async #start() {
    const { rules, ended } = this.#wanted;
    const { ids, prompt } = this.#text;
    const last = this.#given - 1;
    await this.#decoder.prefill(this.#turn, this.#context.slice(this.#turn.ids.length, last), ended);
    await this.#decoder.trim(this.#turn);
    this.#begin = this.#turn.begin;
    this.#most = Math.min(this.#most, this.#decoder.local?.capacity(this.#turn.rows) ?? Infinity);
    ended.throwIfAborted();
    const sampler = /** @type {NonNullable<ReturnType<typeof InferenceSession.hostOf>>} */ (InferenceSession.hostOf(this.#sampler));
    const { vocabulary } = /** @type {NonNullable<Decoder['types']>} */ (this.#decoder.types);
    this.#loop = await this.#host.owner.call('decode', {
      ...this.#decoder.loop(this.#turn, this.#context[last]),
      sampler: sampler.handle,
      chosen: outputsOf(this.#options),
      settings: settingsOf(this.#options, rules),
      counts: this.#options.penalties ? countsOf(ids, prompt, /** @type {number} */ (vocabulary)) : null,
    });
    this.#turn.dispose();
  }

  /** Queue batches, so that the GPU has work while ids are read back. */
  #ask() {
    const { seed } = this.#wanted;
    const { ids, prompt } = this.#text;
    while (this.#batches.length < pace.batches && this.#asked < this.#most) {
      const count = Math.min(this.#size, this.#most - this.#asked);
      const first = ids.length - prompt + this.#asked + 1;
      this.#asked += count;
      const draws = this.#options.greedy ? [] : Array.from({ length: count }, (_, i) => uniform(seed, first + i));
      const steps = { decoding: this.#loop, count, draws, confirmed: this.#context.length - 1 - this.#begin };
      const answer = this.#host.owner.call('decodeSteps', steps).then((found) => ({ ...found, at: performance.now() }));
      answer.catch(() => {}); // `next` awaits it and reports the error
      this.#batches.push({ answer, began: performance.now(), count });
    }
  }

  /** Whether the queue has ended, so that further tokens need another source. */
  get spent() {
    return this.#context.length - this.#given >= this.#most;
  }

  /** @param {boolean} whole @param {number} [first] */
  end(whole, first = Infinity) {
    this.#end ??= this.#finish(whole, first);
    return this.#end;
  }

  /**
   * End the loop and take its caches. Errors are ignored here, as `next` has reported them.
   * @param {boolean} whole
   * @param {number} first
   */
  async #finish(whole, first) {
    if (!this.#loop) return;
    const last = this.#context.length - 1;
    const kept = this.#grows ? Math.min(first, last) : last;
    const there = whole && (kept === last ? last > 0 : this.#decoder.reaches(this.#begin, kept));
    const ending = this.#host.owner.call('decodeEnd', { decoding: this.#loop, kept: there ? kept - this.#begin : null });
    const caches = await ending.catch(() => ({}));
    this.#decoder.restore(this.#turn, caches, this.#context.slice(0, kept), this.#begin);
    this.#host.ran();
    InferenceSession.hostOf(this.#sampler)?.ran();
  }
}
