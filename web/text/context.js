// @ts-check
/**
 * The tokens of a text that the model attends to.
 *
 * A window of W tokens with S sinks: the text is computed from its beginning until W tokens are in the caches. Then it starts
 * over with the first S tokens and the last (W - S) / 2, rounded down, at positions from 0: each token depends on these tokens alone,
 * and the caches never have more than W rows. A prompt is cut as if it had been generated, so that the next turn of a conversation
 * finds in the caches what the last one left; pyruntime/generate/window.py has the rule. Where queued tokens fail on the GPU, the
 * rest is chosen here, one after the other.
 */

import { HostTokens, QueuedTokens } from './tokens.js';

/** @typedef {import('./tokens.js').Token} Token */
/** @typedef {import('./tokens.js').Tokens} Tokens */
/** @typedef {import('./tokens.js').Wanted} Wanted */
/** @typedef {{size: number, sinks: number}} Window of `size` tokens; Infinity: the whole text */

/**
 * The default number of sinks: the token that begins the model's texts, where this one begins with it. A context is
 * computed at positions from 0, so attention needs no others.
 * @param {readonly number[]} ids of the text
 * @param {readonly (number | undefined)[]} begins tokens that begin the model's texts
 */
export function defaultSinks([first], begins) {
  return Number(first !== undefined && begins.includes(first));
}

/** What the model sees of a text. @param {readonly number[]} ids of all of it @param {Window} window */
function inWindow(ids, { size, sinks }) {
  if (ids.length <= size) return [...ids];
  const block = size + 1 - sinks - Math.floor((size - sinks) / 2);
  const dropped = block * Math.ceil((ids.length - size) / block);
  return [...ids.slice(0, sinks), ...ids.slice(sinks + dropped)];
}

/** @implements {Tokens} */
export class ContextTokens {
  #decoder;
  #turn;
  #text;
  #context;
  #wanted;
  #window;
  #onHost = false;
  /** @type {Tokens | null} */
  #inner = null;
  /** Tokens that may come before the window starts over. */
  #left = 0;

  /**
   * @param {import('./decoder.js').Decoder} decoder
   * @param {import('./decoder.js').Turn} turn
   * @param {readonly number[]} ids of the prompt
   * @param {Wanted} wanted
   * @param {Window} window
   */
  constructor(decoder, turn, ids, wanted, window) {
    this.#decoder = decoder;
    this.#turn = turn;
    this.#text = { ids: [...ids], prompt: ids.length };
    this.#context = [...ids];
    this.#wanted = wanted;
    this.#window = window;
  }

  get queued() {
    return this.#inner?.queued ?? false;
  }

  /** @returns {Promise<Token>} */
  async next() {
    if (!this.#left || (this.#inner instanceof QueuedTokens && this.#inner.spent)) await this.#start();
    const token = await this.#chosen();
    this.#left -= 1;
    this.#text.ids.push(token.id);
    this.#context.push(token.id);
    return token;
  }

  /** Begin, start over, or go on with caches that have been trimmed. */
  async #start() {
    const { ids, prompt } = this.#text;
    const context = inWindow(ids, this.#window);
    const isFull = context.length < this.#context.length;
    await this.#inner?.end(true, isFull ? this.#window.sinks : undefined);
    this.#inner = null;
    this.#context = context;
    await this.#decoder.rewind(this.#turn, this.#context);
    this.#left = Math.min(this.#wanted.most - (ids.length - prompt), this.#window.size - this.#context.length + 1);
    await this.#open();
  }

  async #open() {
    const given = /** @type {const} */ ([this.#decoder, this.#turn, this.#context, this.#text, this.#wanted]);
    const made = (this.#onHost ? null : await QueuedTokens.open(...given, this.#left)) ?? new HostTokens(...given);
    this.#inner = made;
    return made;
  }

  /** The next token; where queued ones fail, of what is computed anew. @returns {Promise<Token>} */
  async #chosen() {
    const inner = /** @type {Tokens} */ (this.#inner);
    try {
      return await inner.next();
    } catch (error) {
      this.#wanted.ended.throwIfAborted();
      if (!inner.queued) throw error;
      if (/** @type {Error} */ (error).name === 'NoPlan') return this.#elsewhere(inner);
      console.warn(`pyruntime chooses the tokens of this text on the host from here on: ${/** @type {Error} */ (error).message}`);
    }
    await inner.end(false);
    this.#turn.dispose();
    this.#onHost = true;
    return (await this.#open()).next();
  }

  /** The next token, where the text goes on with what it has. @param {Tokens} inner that ends @returns {Promise<Token>} */
  async #elsewhere(inner) {
    await inner.end(true);
    return (await this.#open()).next();
  }

  /** @param {boolean} whole */
  async end(whole) {
    await this.#inner?.end(whole);
  }
}
