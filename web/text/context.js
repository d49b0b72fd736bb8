// @ts-check
/**
 * The tokens of a text that the model attends to.
 *
 * With a window of W tokens and S sinks, the text is computed from its start until the caches have W tokens. Then it restarts with the
 * first S tokens and the last (W - S) / 2, rounded down, at positions from 0: each token depends on these tokens alone, and caches never
 * exceed W rows. A prompt is truncated as if it had been generated, so that the next turn of a conversation can use the caches of the last
 * one; see pyruntime/generate/window.py. If queued tokens fail on the GPU, the rest is selected here, one token at a time.
 */

import { HostTokens, QueuedTokens } from './tokens.js';

/** @typedef {import('./tokens.js').Token} Token */
/** @typedef {import('./tokens.js').Tokens} Tokens */
/** @typedef {import('./tokens.js').Wanted} Wanted */
/** @typedef {{size: number, sinks: number}} Window of `size` tokens; Infinity: the whole text */

/**
 * Return the default number of sinks: 1 if the text starts with the token that starts the model's texts, else 0. A context is computed at
 * positions from 0, so attention needs no others.
 * @param {readonly number[]} ids ids of the text
 * @param {readonly (number | undefined)[]} begins tokens that start the model's texts
 */
export function defaultSinks([first], begins) {
  return Number(first !== undefined && begins.includes(first));
}

/** Return the tokens in the window. @param {readonly number[]} ids ids of the whole text @param {Window} window */
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
  /** Tokens that can follow before the window restarts. */
  #left = 0;

  /**
   * @param {import('./decoder.js').Decoder} decoder
   * @param {import('./decoder.js').Turn} turn
   * @param {readonly number[]} ids ids of the prompt
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

  /** Start, restart, or continue with trimmed caches. */
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

  /** Return the next token; if a queued one fails, compute it again. @returns {Promise<Token>} */
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

  /**
   * Return the next token after a source of tokens has ended, if the text continues.
   * @param {Tokens} inner the source that has ended
   * @returns {Promise<Token>}
   */
  async #elsewhere(inner) {
    await inner.end(true);
    return (await this.#open()).next();
  }

  /** @param {boolean} whole */
  async end(whole) {
    await this.#inner?.end(whole);
  }
}
