// @ts-check
/** Text input of a language model: a text that it continues, or a conversation. The answer is streamed and can be stopped. */

import { h, onEnter, showRunning } from '../dom.js';

/** @typedef {import('../../pyruntime.js').TextGenerator} TextGenerator */
/** @typedef {import('../../pyruntime.js').ChatMessage} ChatMessage */
/**
 * @typedef {object} Context
 * @property {TextGenerator} generator
 * @property {string} prompt initial text of the field
 * @property {() => import('../../pyruntime.js').GenerateOptions} options
 * @property {(piece: import('../../pyruntime.js').Piece) => void} tell
 * @property {(result: {text: string, tokens: number, ms: number, stopped: boolean}) => void} done
 * @property {(words: string) => void} read announce text to screen readers
 * @property {(error: unknown) => void} fail
 */

/** Names of the speakers, in part names and in text. */
const NAMES = { user: 'You', assistant: 'Model' };

/** Run the model, one run at a time. */
class Run {
  /** @type {AbortController | null} */
  control = null;

  /** @param {Context} context @param {HTMLButtonElement} go @param {HTMLButtonElement} stop @param {HTMLElement} facts */
  constructor(context, go, stop, facts) {
    this.context = context;
    this.go = go;
    this.stop = stop;
    this.facts = facts;
    stop.addEventListener('click', () => this.control?.abort());
  }

  /** @param {string | ChatMessage[]} input @param {(text: string) => void} show @returns {Promise<string>} the text */
  async start(input, show) {
    const { generator, options, tell, done, read, fail } = this.context;
    const control = new AbortController();
    this.control = control;
    showRunning(this.go, this.stop, true);
    read('Writing');
    let [text, tokens] = ['', 0];
    const begin = performance.now();
    let first = begin;
    try {
      for await (const piece of generator.generate(input, { window: Infinity, ...options(), signal: control.signal })) {
        tokens += 1;
        if (tokens === 1) first = performance.now();
        text += piece.text;
        show(text);
        tell(piece);
        const seconds = (performance.now() - first) / 1000;
        const pace = tokens > 1 ? `, ${((tokens - 1) / seconds).toPrecision(3)} a second` : '';
        this.facts.textContent = `${tokens} ${tokens === 1 ? 'token' : 'tokens'}${pace}`;
      }
      read(text);
    } catch (error) {
      if (!control.signal.aborted) fail(error);
      read(control.signal.aborted ? `Stopped. ${text}` : '');
    }
    this.control = null;
    showRunning(this.go, this.stop, false);
    done({ text, tokens, ms: performance.now() - begin, stopped: control.signal.aborted });
    return text;
  }
}

/** @param {string} words */
function controls(words) {
  return {
    go: h('button', { type: 'button', part: 'run' }, words),
    stop: h('button', { type: 'button', part: 'stop', hidden: true }, 'Stop'),
    facts: h('span', { class: 'soft', part: 'facts' }),
  };
}

/** A text that the model continues. @param {Context} context */
function text(context) {
  const area = h('textarea', { id: 'prompt', part: 'prompt', rows: 3, autocomplete: 'off' });
  area.value = context.prompt;
  const written = h('p', { part: 'text', hidden: true });
  const { go, stop, facts } = controls('Write');
  const run = new Run(context, go, stop, facts);
  const start = () => {
    if (run.control) return;
    const prompt = area.value.trimEnd();
    const begun = h('span', { part: 'begun' }, prompt);
    const rest = h('span');
    written.replaceChildren(begun, rest);
    written.hidden = false;
    run.start(prompt, (sofar) => { rest.textContent = sofar; });
  };
  go.addEventListener('click', start);
  onEnter(area, start);
  return {
    elements: [h('label', { for: 'prompt' }, 'Begin a text'), area, h('div', { class: 'row' }, go, stop, facts), written],
    stop: () => run.control?.abort(),
  };
}

/** A conversation. @param {Context} context */
function chat(context) {
  /** @type {ChatMessage[]} */
  const messages = [];
  const area = h('textarea', { id: 'prompt', part: 'prompt', rows: 2, autocomplete: 'off' });
  area.value = context.prompt;
  const log = h('div', { part: 'log', role: 'region', tabindex: 0, 'aria-label': 'Conversation', hidden: true });
  const { go, stop, facts } = controls('Send');
  const run = new Run(context, go, stop, facts);
  const add = (/** @type {'user' | 'assistant'} */ role, /** @type {string} */ content) => {
    const words = h('p', {}, content);
    log.hidden = false;
    log.append(h('div', { part: `turn ${role}` }, h('b', { class: 'soft' }, NAMES[role]), words));
    log.scrollTop = log.scrollHeight;
    return words;
  };
  const send = async () => {
    const content = area.value.trim();
    if (!content || run.control) return;
    area.value = '';
    messages.push({ role: 'user', content });
    add('user', content);
    const words = add('assistant', '');
    const answer = await run.start([...messages], (sofar) => {
      words.textContent = sofar.trimStart();
      log.scrollTop = log.scrollHeight;
    });
    messages.push({ role: 'assistant', content: answer });
  };
  go.addEventListener('click', send);
  onEnter(area, send);
  return {
    elements: [log, h('label', { for: 'prompt' }, 'Your message'), area, h('div', { class: 'row' }, go, stop, facts)],
    stop: () => run.control?.abort(),
  };
}

/** @type {Record<string, (context: Context) => {elements: HTMLElement[], stop: () => void}>} */
export const WRITING = { text, chat };
