// @ts-check
/** TextGenerator: a language model out of a folder, that writes on. */

import { Decoder, Turn } from './decoder.js';
import { openFolder } from './folder.js';
import { readGraph, readRepository, readTokenizer } from './repository.js';
import { draw, largest, logSumExp, penalize, penalizes, rulesOf, uniform } from './sampling.js';
import { StopStrings, TextStream, TextTokenizer } from './tokenizer.js';

/** @typedef {import('../pyruntime.js').ChatMessage} ChatMessage */
/** @typedef {import('../pyruntime.js').GenerateOptions} GenerateOptions */
/** @typedef {import('../pyruntime.js').Piece} Piece */
/** @typedef {import('../pyruntime.js').TextGenerator} PublicGenerator */
/** @typedef {import('./repository.js').Repository} Repository */

const MOST_TOKENS = 512;

/** Milliseconds since a moment. @param {number} begin */
const since = (begin) => performance.now() - begin;

/** @implements {PublicGenerator} */
export class TextGenerator {
  #decoder;
  #tokenizer;
  #repository;
  /** What the last text left, for one that begins like it. @type {Turn | null} */
  #kept = null;
  /** Texts that are being written. @type {Map<Turn, AbortController>} */
  #live = new Map();
  #released = false;

  /**
   * Use `TextGenerator.create`.
   * @param {Decoder} decoder
   * @param {TextTokenizer} tokenizer
   * @param {Repository} repository
   */
  constructor(decoder, tokenizer, repository) {
    this.#decoder = decoder;
    this.#tokenizer = tokenizer;
    this.#repository = repository;
  }

  /**
   * @param {import('../pyruntime.js').FolderSource} source
   * @param {import('../pyruntime.js').GeneratorOptions} [options]
   */
  static async create(source, { dtype, onProgress, signal, sessionOptions } = {}) {
    signal?.throwIfAborted();
    const folder = openFolder(source);
    const repository = await readRepository(folder, dtype, signal);
    const file = (/** @type {string} */ path, /** @type {number} */ loaded, /** @type {number | undefined} */ total) => (
      onProgress?.({ phase: 'file', status: loaded === total ? 'end' : 'progress', file: path, loaded, total }));
    const [{ model, externalData }, files] = await Promise.all([
      readGraph(folder, repository.model, { signal, onProgress: file }), readTokenizer(folder, signal)]);
    const tokenizer = await TextTokenizer.create(files, folder);
    const decoder = await Decoder.create(model, externalData, repository.names, { ...sessionOptions, onProgress, signal });
    return new TextGenerator(decoder, tokenizer, repository);
  }

  /** The session behind it. */
  get session() {
    return this.#decoder.session;
  }

  /** Tokens that it can look back at; Infinity where nobody says. */
  get contextLength() {
    return this.#repository.contextLength;
  }

  /** @param {string} text @returns {number[]} */
  encode(text) {
    return this.#tokenizer.encode(text, true);
  }

  /** @param {readonly number[]} ids */
  decode(ids) {
    return this.#tokenizer.decode(ids);
  }

  /**
   * @param {string | readonly ChatMessage[]} input
   * @param {GenerateOptions} [options]
   * @returns {AsyncGenerator<Piece, void, void>}
   */
  async* generate(input, options = {}) {
    this.#refuseReleased();
    const { signal, maxNewTokens = MOST_TOKENS, keepPrompt = true } = options;
    signal?.throwIfAborted();
    const rules = rulesOf(this.#repository.sampling, options);
    const seed = options.seed ?? Math.floor(Math.random() * 2 ** 32);
    const ids = await this.#prompt(input, options);
    const most = Math.min(maxNewTokens, this.contextLength - ids.length);
    if (ids.length > this.contextLength) {
      throw new RangeError(`the prompt has ${ids.length} tokens, the model can look back at ${this.contextLength}`);
    }
    const control = new AbortController();
    const ended = AbortSignal.any([control.signal, ...(signal ? [signal] : [])]);
    const turn = this.#kept ?? new Turn();
    this.#kept = null;
    this.#live.set(turn, control);
    let whole = false;
    try {
      if (most > 0) yield* this.#write(turn, ids, { rules, seed, most, ended, options });
      whole = true;
    } finally {
      this.#live.delete(turn);
      if (whole && keepPrompt && !this.#kept && !this.#released) this.#kept = turn;
      else turn.dispose();
    }
  }

  /**
   * @param {Turn} turn
   * @param {number[]} ids of the prompt
   * @param {{rules: import('./sampling.js').Rules, seed: number, most: number, ended: AbortSignal, options: GenerateOptions}} how
   * @returns {AsyncGenerator<Piece, void, void>}
   */
  async* #write(turn, ids, { rules, seed, most, ended, options }) {
    const { stop = [], topLogProbabilities = 0, processLogits } = options;
    const stops = new StopStrings([stop].flat());
    const ends = new Set(options.endTokens ?? this.#ends());
    const stream = new TextStream(this.#tokenizer, ids);
    const all = [...ids];
    let begin = performance.now();
    await this.#decoder.rewind(turn, ids);
    let next = ids.slice(turn.ids.length);
    for (let count = 1; ; count++) {
      ended.throwIfAborted();
      const logits = await this.#decoder.step(turn, next, ended);
      ended.throwIfAborted();
      const model = since(begin);
      begin = performance.now();
      const whole = logSumExp(logits);
      const top = topLogProbabilities > 0 ? this.#top(logits, whole, topLogProbabilities) : undefined;
      const changed = processLogits || penalizes(rules) ? logits.slice() : logits;
      penalize(changed, rules, all, ids.length);
      processLogits?.(changed, all);
      const id = draw(changed, rules, () => uniform(seed, count));
      const sampling = since(begin);
      begin = performance.now();
      const isEnd = ends.has(id);
      let text = stops.add(isEnd ? stream.end() : stream.add(id));
      const finishReason = stops.found ? 'stop' : isEnd ? 'end' : count === most ? 'length' : undefined;
      if (finishReason && !stops.found) text += stops.add(isEnd ? '' : stream.end()) + stops.end();
      const times = { model, sampling, text: since(begin) };
      yield { text, id, logProbability: logits[id] - whole, top, times, promptTokens: next.length, finishReason };
      if (finishReason) return;
      begin = performance.now();
      all.push(id);
      next = [id];
    }
  }

  /** The likeliest tokens. @param {Float32Array} logits @param {number} whole ln of the sum of exp @param {number} count */
  #top(logits, whole, count) {
    return largest(logits, count).map((id) => ({ id, text: this.#tokenizer.name(id), logProbability: logits[id] - whole }));
  }

  /** Tokens that end a text. */
  #ends() {
    const { endTokens } = this.#repository;
    const named = this.#tokenizer.end;
    return endTokens.length || named === undefined ? endTokens : [named];
  }

  /** @param {string | readonly ChatMessage[]} input @param {GenerateOptions} options */
  async #prompt(input, { signal, templateValues = {} }) {
    const ids = typeof input === 'string' ? this.#tokenizer.encode(input, true)
      : this.#tokenizer.encode(await this.#tokenizer.render(input, templateValues, signal), false);
    if (ids.length) return ids;
    const [first] = this.#ends();
    if (first === undefined) throw new RangeError('the prompt is empty: it must have at least one token');
    return [first];
  }

  /** Give the memory of the last text back; the next one computes its whole prompt. */
  forget() {
    this.#kept?.dispose();
    this.#kept = null;
  }

  async release() {
    if (this.#released) return;
    this.#released = true;
    this.forget();
    for (const [turn, control] of this.#live) {
      control.abort(new Error('the generator is released'));
      await turn.busy;
      turn.dispose();
    }
    await this.#decoder.release();
  }

  #refuseReleased() {
    if (this.#released) throw new Error('the generator is released');
  }
}
