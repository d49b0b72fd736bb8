// @ts-check
/** Generated text, one span for each token, with the model's alternatives for the token under the pointer. */

import { h } from '../../dom.js';

/** @typedef {import('../../../pyruntime.js').Piece} Piece */

/** Return a token's text with visible white space. @param {string} text */
function visible(text) {
  return text.replace(/\n/g, '↵').replace(/ /g, '␣').replace(/\t/g, '⇥') || '∅';
}

/** @param {number} part */
function percent(part) {
  return part >= 0.0995 ? `${Math.round(100 * part)}%` : `${(100 * part).toPrecision(2)}%`;
}

/** Return the most likely tokens at a position as bars, with the selected one marked, even if it is not among them. @param {Piece} piece */
function chart({ id, logProbability, top = [] }, /** @type {string} */ name) {
  const rows = top.some((token) => token.id === id) ? top : [...top, { id, text: name, logProbability }];
  return h('ol', { class: 'candidates', 'aria-label': 'What the model considered here' }, ...rows.map((token) => {
    const part = Math.exp(token.logProbability ?? 0);
    const bar = h('span', { class: 'candidate-bar', 'aria-hidden': 'true' });
    bar.style.setProperty('--part', String(part));
    const mark = token.id === id ? h('span', { class: 'hidden' }, ', chosen') : null;
    return h('li', { class: token.id === id ? 'candidate chosen' : 'candidate' },
      h('code', {}, visible(token.text)), bar, h('span', { class: 'candidate-part' }, percent(part), mark));
  }));
}

export class WrittenText {
  /** @type {{piece: Piece, span: HTMLElement}[]} */
  #tokens = [];
  #shown = -1;

  /**
   * @param {HTMLElement} element shows the text
   * @param {HTMLElement} aside shows the chart
   */
  constructor(element, aside) {
    this.element = element;
    this.aside = aside;
    const placeOf = (/** @type {Event} */ { target }) => (
      this.#tokens.findIndex(({ span }) => target instanceof Node && span.contains(target)));
    const point = (/** @type {Event} */ event) => {
      const place = placeOf(event);
      if (place >= 0) this.show(place);
    };
    element.addEventListener('pointerover', point);
    element.addEventListener('pointerdown', point);
    element.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined || !this.#tokens.length) return;
      event.preventDefault();
      this.show(Math.max(0, Math.min(this.#tokens.length - 1, (this.#shown < 0 ? -1 : this.#shown) + step)));
    });
  }

  /** Start a new text. @param {string} prompt */
  begin(prompt) {
    this.#tokens = [];
    this.#shown = -1;
    this.element.replaceChildren(h('span', { class: 'written-prompt' }, prompt));
    this.aside.replaceChildren();
  }

  /** @param {Piece} piece */
  add(piece) {
    if (!piece.text) return;
    const span = h('span', { class: 'token' }, piece.text);
    span.style.setProperty('--doubt', String(1 - Math.exp(piece.logProbability ?? 0)));
    this.#tokens.push({ piece, span });
    this.element.append(span);
  }

  /** Show the chart of a token. @param {number} place */
  show(place) {
    if (place === this.#shown) return;
    this.#tokens[this.#shown]?.span.classList.remove('pointed');
    this.#shown = place;
    const { piece, span } = this.#tokens[place];
    span.classList.add('pointed');
    this.aside.replaceChildren(h('h3', { class: 'minor' }, `Token ${place + 1}`), chart(piece, piece.text));
  }

  /** The whole text, without the prompt. */
  get text() {
    return this.#tokens.map(({ piece }) => piece.text).join('');
  }
}
