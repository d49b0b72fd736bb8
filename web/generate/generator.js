// @ts-check
/** TextGenerator: a language model out of a folder, that writes on. */

import { client } from '../client.js';
import { Decoder, Turn } from './decoder.js';
import { openFolder, pathIn } from './folder.js';
import { readGraph, readRepository, readTokenizer } from './repository.js';
import { rulesOf } from './sampling.js';
import { StopStrings, TextStream, TextTokenizer } from './tokenizer.js';
import { HostTokens, QueuedTokens } from './tokens.js';
import { windowOf } from './window.js';

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
    const file = (/** @type {string} */ path, /** @type {number} */ loaded, /** @type {number | undefined} */ total) => (
      onProgress?.({ phase: 'file', status: loaded === total ? 'end' : 'progress', file: path, loaded, total }));
    const heard = (/** @type {import('../pyruntime.js').ProgressEvent} */ event) => {
      if (event.part) file(pathIn(folder, event.part.url), event.part.loaded, event.part.total);
      else if (!signal?.aborted) onProgress?.(event);
    };
    client().call('ready', {}, [], { onProgress: heard }).catch(() => {}); // Python starts meanwhile
    const repository = await readRepository(folder, dtype, signal);
    // What fails ends the other.
    const control = new AbortController();
    const either = AbortSignal.any([control.signal, ...(signal ? [signal] : [])]);
    const decoding = (async () => {
      const { model, externalData } = await readGraph(folder, repository.model, { signal: either, onProgress: file });
      return Decoder.create(model, externalData, repository.names, { ...sessionOptions, onProgress: heard, signal: either });
    })();
    const reading = readTokenizer(folder, either).then((files) => TextTokenizer.create(files, folder));
    try {
      const [decoder, tokenizer] = await Promise.all([decoding, reading]);
      return new TextGenerator(decoder, tokenizer, repository);
    } catch (error) {
      control.abort(error);
      await Promise.allSettled([reading, decoding.then((decoder) => decoder.release())]);
      throw error;
    }
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
    const window = windowOf(options, this.contextLength);
    const ids = await this.#prompt(input, options);
    const room = window.size === Infinity ? this.contextLength - ids.length : Infinity;
    const most = Math.min(maxNewTokens, room);
    if (room < 0) {
      throw new RangeError(`the prompt has ${ids.length} tokens, the model can look back at ${this.contextLength}: `
        + 'the option window lets it see the first and the last ones');
    }
    const control = new AbortController();
    const ended = AbortSignal.any([control.signal, ...(signal ? [signal] : [])]);
    const turn = this.#kept ?? new Turn();
    this.#kept = null;
    this.#live.set(turn, control);
    let whole = false;
    try {
      if (most > 0) yield* this.#write(turn, ids, { rules, seed, most, ended, window, options });
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
   * @param {{rules: import('./sampling.js').Rules, seed: number, most: number, ended: AbortSignal,
   *    window: import('./window.js').Window, options: GenerateOptions}} how
   * @returns {AsyncGenerator<Piece, void, void>}
   */
  async* #write(turn, ids, { rules, seed, most, ended, window, options }) {
    const { stop = [], topLogProbabilities = 0, logProbabilities = true, processLogits } = options;
    const stops = new StopStrings([stop].flat());
    const ends = new Set(options.endTokens ?? this.#ends());
    const stream = new TextStream(this.#tokenizer, ids);
    await this.#decoder.rewind(turn, window.context(ids));
    const wanted = { rules, seed, most, top: topLogProbabilities, logs: logProbabilities, ended, processLogits, window };
    turn.tokens = await QueuedTokens.open(this.#decoder, turn, ids, wanted) ?? new HostTokens(this.#decoder, turn, ids, ids.length, wanted);
    const all = [...ids];
    let finishReason;
    try {
      for (let count = 1; !finishReason; count++) {
        ended.throwIfAborted();
        const { id, logProbability, top, model, sampling, computed } = await this.#next(turn, all, ids.length, wanted);
        ended.throwIfAborted();
        const begin = performance.now();
        const isEnd = ends.has(id);
        let text = stops.add(isEnd ? stream.end() : stream.add(id));
        finishReason = /** @type {Piece['finishReason']} */ (
          stops.found ? 'stop' : isEnd ? 'end' : count === most ? 'length' : undefined);
        if (finishReason && !stops.found) text += stops.add(isEnd ? '' : stream.end()) + stops.end();
        const named = top?.map((one) => ({ ...one, text: this.#tokenizer.name(one.id) }));
        all.push(id);
        if (finishReason) await turn.tokens?.end(true);
        yield { text, id, logProbability, top: named, times: { model, sampling, text: since(begin) }, promptTokens: computed, finishReason };
      }
    } finally {
      await turn.tokens?.end(false);
      turn.tokens = null;
    }
  }

  /**
   * The next token. Where the GPU fails at queued ones, they are chosen here from then on, from nothing: what was computed is
   * given up.
   * @param {Turn} turn
   * @param {readonly number[]} all tokens so far
   * @param {number} prompt how many are the prompt's
   * @param {import('./tokens.js').Wanted} wanted
   */
  async #next(turn, all, prompt, wanted) {
    const ask = () => {
      const next = /** @type {import('./tokens.js').Tokens} */ (turn.tokens).next();
      turn.busy = next.catch(() => {});
      return next;
    };
    try {
      return await ask();
    } catch (error) {
      wanted.ended.throwIfAborted();
      if (!turn.tokens?.queued) throw error;
      console.warn(`pyruntime chooses the tokens of this text on the host from here on: ${/** @type {Error} */ (error).message}`);
      await turn.tokens?.end(false);
      turn.dispose();
      turn.tokens = new HostTokens(this.#decoder, turn, all, prompt, wanted);
      return ask();
    }
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
      await turn.tokens?.end(false);
      turn.dispose();
    }
    await this.#decoder.release();
  }

  #refuseReleased() {
    if (this.#released) throw new Error('the generator is released');
  }
}
