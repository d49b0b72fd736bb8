// @ts-check
/** TextGenerator: load a language model from a folder and generate text with it. */

import { optionsOf, requireArray, requireText, wrong } from '../api/arguments.js';
import { client } from '../api/client.js';
import { ContextTokens, defaultSinks } from './context.js';
import { Decoder, Turn } from './decoder.js';
import { openFolder, pathIn } from './folder.js';
import { readGraph, readRepository, readTokenizer } from './repository.js';
import { rulesOf } from './sampling.js';
import { StopStrings, TextStream, TextTokenizer } from './tokenizer.js';

/** @typedef {import('../pyruntime.js').ChatMessage} ChatMessage */
/** @typedef {import('../pyruntime.js').GenerateOptions} GenerateOptions */
/** @typedef {import('../pyruntime.js').Piece} Piece */
/** @typedef {import('../pyruntime.js').TextGenerator} PublicGenerator */
/** @typedef {import('./repository.js').Repository} Repository */

const MOST_TOKENS = 512;

/** Return the milliseconds since a time. @param {number} begin */
const since = (begin) => performance.now() - begin;

/** @implements {PublicGenerator} */
export class TextGenerator {
  #decoder;
  #tokenizer;
  #repository;
  /** Caches of the last text, for one that starts like it. @type {Turn | null} */
  #kept = null;
  /** Texts that are being generated. @type {Map<Turn, AbortController>} */
  #live = new Map();
  #released = false;

  /**
   * Internal: use `TextGenerator.create`.
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
  static async create(source, options) {
    const { dtype, kvCacheBits, onProgress, signal, sessionOptions } = optionsOf('options', options);
    signal?.throwIfAborted();
    const folder = openFolder(source);
    const file = (/** @type {string} */ path, /** @type {number} */ loaded, /** @type {number | undefined} */ total) => (
      onProgress?.({ phase: 'file', status: loaded === total ? 'end' : 'progress', file: path, loaded, total }));
    const heard = (/** @type {import('../pyruntime.js').ProgressEvent} */ event) => {
      if (event.part) file(pathIn(folder, event.part.url), event.part.loaded, event.part.total);
      else if (!signal?.aborted) onProgress?.(event);
    };
    const mayHavePlan = sessionOptions?.plan || sessionOptions?.cachePlan && await (await import('../plans/caching.js')).isAnything();
    if (!mayHavePlan) client().call('ready', {}, [], { onProgress: heard }).catch(() => {}); // start Python meanwhile
    const repository = await readRepository(folder, dtype, signal);
    // A failure aborts the other.
    const control = new AbortController();
    const either = AbortSignal.any([control.signal, ...(signal ? [signal] : [])]);
    const decoding = (async () => {
      const { model, externalData } = await readGraph(folder, repository.model, { signal: either, onProgress: file });
      const extra = { ...(kvCacheBits && { 'pyruntime.kv_cache_bits': kvCacheBits }), ...sessionOptions?.extra };
      return Decoder.create(model, externalData, repository, { ...sessionOptions, extra, onProgress: heard, signal: either });
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

  /** The decoder's session. */
  get session() {
    return this.#decoder.session;
  }

  /** Number of tokens that the model was trained for; Infinity if neither its configuration nor its graph states it. */
  get contextLength() {
    return Math.min(this.#repository.contextLength, this.#decoder.positions);
  }

  /** @param {string} text @returns {number[]} */
  encode(text) {
    requireText('text', text);
    return this.#tokenizer.encode(text, true);
  }

  /** @param {readonly number[]} ids */
  decode(ids) {
    return this.#tokenizer.decode(requireArray('ids', ids));
  }

  /**
   * @param {string | readonly ChatMessage[]} input
   * @param {GenerateOptions} [given]
   * @returns {AsyncGenerator<Piece, void, void>}
   */
  async* generate(input, given) {
    this.#refuseReleased();
    const options = optionsOf('options', given);
    if (typeof input !== 'string' && !Array.isArray(input)) throw wrong('input', 'a string, or an array of messages', input);
    const { signal, maxNewTokens = MOST_TOKENS, keepPrompt = true } = options;
    signal?.throwIfAborted();
    const rules = rulesOf(this.#repository.sampling, options);
    const seed = options.seed ?? Math.floor(Math.random() * 2 ** 32);
    const ids = await this.#prompt(input, options);
    const window = this.#window(options, ids);
    const ends = options.window === undefined;
    if (ends && ids.length > window.size) {
      throw new RangeError(`the prompt has ${ids.length} tokens, the model can look back at ${window.size}; with \`window\` it looks at its end`);
    }
    const most = ends ? Math.min(maxNewTokens, window.size - ids.length) : maxNewTokens;
    const control = new AbortController();
    const ended = AbortSignal.any([control.signal, ...(signal ? [signal] : [])]);
    const turn = this.#kept ?? new Turn();
    this.#kept = null;
    this.#live.set(turn, control);
    let whole = false;
    try {
      if (most > 0) yield* this.#write(turn, ids, { rules, seed, most, ended, options, window });
      whole = true;
    } finally {
      this.#live.delete(turn);
      if (whole && keepPrompt && !this.#kept && !this.#released) this.#kept = turn;
      else turn.dispose();
    }
  }

  /**
   * @param {Turn} turn
   * @param {number[]} ids ids of the prompt
   * @param {{rules: import('./sampling.js').Rules, seed: number, most: number, ended: AbortSignal, options: GenerateOptions, window:
   *   import('./context.js').Window}} how
   * @returns {AsyncGenerator<Piece, void, void>}
   */
  async* #write(turn, ids, { rules, seed, most, ended, options, window }) {
    const { stop = [], topLogProbabilities = 0, logProbabilities = true, processLogits } = options;
    const stops = new StopStrings([stop].flat());
    const ends = new Set(options.endTokens ?? this.#ends());
    const stream = new TextStream(this.#tokenizer, ids);
    const wanted = { rules, seed, most, top: topLogProbabilities, logs: logProbabilities, ended, processLogits };
    const tokens = new ContextTokens(this.#decoder, turn, ids, wanted, window);
    turn.tokens = tokens;
    let finishReason;
    try {
      for (let count = 1; !finishReason; count++) {
        ended.throwIfAborted();
        const { id, logProbability, top, model, sampling, computed } = await asked(turn, tokens);
        ended.throwIfAborted();
        const begin = performance.now();
        const isEnd = ends.has(id);
        let text = stops.add(isEnd ? stream.end() : stream.add(id));
        finishReason = /** @type {Piece['finishReason']} */ (
          stops.found ? 'stop' : isEnd ? 'end' : count === most ? 'length' : undefined);
        if (finishReason && !stops.found) text += stops.add(isEnd ? '' : stream.end()) + stops.end();
        const named = top?.map((one) => ({ ...one, text: this.#tokenizer.name(one.id) }));
        if (finishReason) await tokens.end(true);
        yield { text, id, logProbability, top: named, times: { model, sampling, text: since(begin) }, promptTokens: computed, finishReason };
      }
    } finally {
      await tokens.end(false);
      turn.tokens = null;
    }
  }

  /** @param {GenerateOptions} options @param {readonly number[]} ids ids of the prompt @returns {import('./context.js').Window} */
  #window({ window, sinks: asked }, ids) {
    const { beginToken, sinks: advised } = this.#repository;
    const sinks = asked ?? advised ?? defaultSinks(ids, [beginToken, this.#tokenizer.begin]);
    const isWhole = [window ?? Infinity, sinks].every((number) => Number.isInteger(number) || number === Infinity);
    const most = this.#decoder.local ? Infinity : this.contextLength; // local attention has no limit
    const size = Math.min(window ?? Infinity, most);
    if (!isWhole || sinks < 0 || (window !== undefined && size < sinks + 2)) {
      throw new RangeError(`window: expected a whole number from sinks + 2, here ${sinks + 2}, or Infinity, got ${window}`);
    }
    return { size, sinks };
  }

  /** Return the tokens that end a text. */
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

  /** Release the last text's caches; the next text computes its whole prompt. */
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

/** Return the next token; marks the turn as busy meanwhile. @param {Turn} turn @param {ContextTokens} tokens */
function asked(turn, tokens) {
  const next = tokens.next();
  turn.busy = next.catch(() => {});
  return next;
}
