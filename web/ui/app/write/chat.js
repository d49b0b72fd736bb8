// @ts-check
/** A conversation with a model that has a chat template. */

import { h, onEnter, showRunning } from '../../dom.js';
import { Pace } from './pace.js';

/** @typedef {import('../../../pyruntime.js').ChatMessage} ChatMessage */
/** @typedef {import('../../../pyruntime.js').GenerateOptions} GenerateOptions */
/** @typedef {(messages: ChatMessage[], options: GenerateOptions) => AsyncIterable<import('../../../pyruntime.js').Piece>} Pieces */

export class Chat {
  /** @type {ChatMessage[]} */
  #messages = [];
  /** @type {AbortController | null} */
  #control = null;

  /** @param {HTMLElement} element @param {Pieces} pieces */
  constructor(element, pieces) {
    this.element = element;
    this.pieces = pieces;
    this.log = h('div', { class: 'chat-log', tabindex: 0, role: 'region', 'aria-label': 'Conversation' });
    this.area = h('textarea', { rows: 2, 'aria-label': 'Your message', placeholder: 'Your message' });
    this.send = h('button', { type: 'button' }, 'Send');
    this.stop = h('button', { type: 'button', class: 'quiet', hidden: true }, 'Stop');
    this.anew = h('button', { type: 'button', class: 'quiet' }, 'Begin anew');
    this.facts = h('p', { class: 'caption' });
    this.status = h('p', { class: 'hidden', role: 'status' });
    element.append(this.log, this.area, h('div', { class: 'ways' }, this.send, this.stop, this.anew), this.facts, this.status);
    this.send.addEventListener('click', () => this.say());
    this.stop.addEventListener('click', () => this.#control?.abort());
    this.anew.addEventListener('click', () => this.#begin());
    onEnter(this.area, () => this.say());
  }

  /** @param {string | null} name name of the model; null: it has no chat template */
  show(name) {
    this.element.hidden = name === null;
    this.#begin();
    if (name) this.log.setAttribute('aria-label', `Conversation with ${name}`);
  }

  #begin() {
    this.#control?.abort();
    this.#messages = [];
    this.log.replaceChildren();
    this.facts.textContent = '';
  }

  /** @param {'user' | 'assistant'} role @param {string} text */
  #add(role, text) {
    const words = h('p', {}, text);
    this.log.append(h('div', { class: 'chat-turn', data: { role } }, h('b', {}, role === 'user' ? 'You' : 'Model'), words));
    this.log.scrollTop = this.log.scrollHeight;
    return words;
  }

  /** Send the text in the field. */
  async say() {
    const content = this.area.value.trim();
    if (!content || this.#control) return;
    this.area.value = '';
    const messages = this.#messages;
    messages.push({ role: 'user', content });
    this.#add('user', content);
    const words = this.#add('assistant', '');
    const [control, pace] = [new AbortController(), new Pace()];
    this.#control = control;
    showRunning(this.send, this.stop, true);
    this.status.textContent = 'The model is answering';
    let answer = '';
    try {
      for await (const piece of this.pieces(messages, { signal: control.signal })) {
        answer += piece.text;
        words.textContent = answer.trimStart();
        this.log.scrollTop = this.log.scrollHeight;
        pace.add(piece);
        this.facts.textContent = pace.words;
      }
      this.status.textContent = answer;
    } catch (error) {
      this.status.textContent = control.signal.aborted ? 'Stopped' : '';
      if (!control.signal.aborted) words.textContent = `${answer}\n${/** @type {Error} */ (error).message}`;
    } finally {
      if (messages === this.#messages) messages.push({ role: 'assistant', content: answer });
      this.#control = null;
      showRunning(this.send, this.stop, false);
    }
  }
}
