// @ts-check
/** Encode and decode tokens: tokenizer.json and the chat template, by Hugging Face's JavaScript libraries. */

import { jinja, tokenizers } from '../threads.js';
import { json } from './folder.js';

/** @typedef {import('../pyruntime.js').ChatMessage} ChatMessage */
/** @typedef {import('./folder.js').Folder} Folder */

/** Replacement character for bytes that are not a complete character yet. */
const PARTIAL = '\ufffd';
/** Maximum number of tokens for one character: with byte fallback, each of its UTF-8 bytes is a token. */
const LONGEST = 4;

/** Return a token that a configuration names, as a string or in an object. @param {any} token */
function contentOf(token) {
  return typeof token === 'string' ? token : token?.content;
}

export class TextTokenizer {
  /** @param {any} tokenizer @param {Record<string, any>} config @param {Folder} folder */
  constructor(tokenizer, config, folder) {
    this.tokenizer = tokenizer;
    this.config = config;
    this.folder = folder;
    /** @type {any} */
    this.template = null;
  }

  /** @param {{content: object, config: Record<string, any>}} files @param {Folder} folder */
  static async create({ content, config }, folder) {
    const { Tokenizer } = await tokenizers();
    return new TextTokenizer(new Tokenizer(content, config), config, folder);
  }

  /** @param {string} text @param {boolean} special whether to add the tokens that start a text @returns {number[]} */
  encode(text, special) {
    return this.tokenizer.encode(text, { add_special_tokens: special }).ids;
  }

  /** @param {readonly number[]} ids @returns {string} */
  decode(ids) {
    return ids.length ? this.tokenizer.decode([...ids], { skip_special_tokens: true, clean_up_tokenization_spaces: false }) : '';
  }

  /** Return the text of a single token; special tokens by their names. @param {number} id @returns {string} */
  name(id) {
    return this.tokenizer.decode([id], { skip_special_tokens: false, clean_up_tokenization_spaces: false });
  }

  /** The id of the token that ends a text, if the configuration names one. */
  get end() {
    return this.#named('eos_token');
  }

  /** The id of the token that starts a text, if the configuration names one. */
  get begin() {
    return this.#named('bos_token');
  }

  /** @param {string} name @returns {number | undefined} */
  #named(name) {
    const token = contentOf(this.config[name]);
    return token === undefined ? undefined : this.tokenizer.token_to_id(token);
  }

  /**
   * Format a conversation as a prompt.
   * @param {readonly ChatMessage[]} messages
   * @param {Record<string, unknown>} values custom variables of the template
   * @param {AbortSignal} [signal]
   */
  async render(messages, values, signal) {
    this.template ??= await this.#loadTemplate(signal);
    const named = Object.entries(this.config).filter(([name]) => name.endsWith('_token'));
    const tokens = Object.fromEntries(named.map(([name, token]) => [name, contentOf(token)]));
    return this.template.render({ add_generation_prompt: true, ...tokens, ...values, messages });
  }

  /** @param {AbortSignal} [signal] */
  async #loadTemplate(signal) {
    const given = this.config.chat_template;
    const text = typeof given === 'string' ? given
      : given?.find?.((/** @type {any} */ { name }) => name === 'default')?.template
      ?? await (await this.folder.read('chat_template.jinja', { signal }))?.text()
      ?? (await json(this.folder, 'chat_template.json', signal))?.chat_template;
    if (!text) throw new TypeError('the model has no chat template: it continues a text, so give it a string');
    const { Template } = await jinja();
    return new Template(text);
  }
}

/** Incremental decoder of tokens; returns whole characters only. */
export class TextStream {
  #tokenizer;
  /** Tokens that were decoded already, kept because the spaces of later ones depend on them. @type {number[]} */
  #before = [];
  /** Tokens whose text is incomplete. @type {number[]} */
  #open = [];

  /** @param {TextTokenizer} tokenizer @param {readonly number[]} prompt */
  constructor(tokenizer, prompt) {
    this.#tokenizer = tokenizer;
    this.#before = prompt.slice(-LONGEST);
  }

  /** Add a token; return the text that it completes, '' within a character. @param {number} id */
  add(id) {
    this.#open.push(id);
    const text = this.#text();
    if (text.endsWith(PARTIAL) && this.#open.length < 2 * LONGEST) return '';
    this.#before = [...this.#before, ...this.#open].slice(-LONGEST);
    this.#open = [];
    return text;
  }

  /** Return the remaining text at the end; an incomplete character is dropped. */
  end() {
    const text = this.#text();
    this.#open = [];
    return text.replace(/\ufffd+$/, '');
  }

  #text() {
    const before = this.#tokenizer.decode(this.#before);
    const all = this.#tokenizer.decode([...this.#before, ...this.#open]);
    return all.startsWith(before) ? all.slice(before.length) : all.slice(common(all, before));
  }
}

/** Return the length of the common prefix of two strings. @param {string} a @param {string} b */
function common(a, b) {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length += 1;
  return length;
}

/** Passes text up to the first stop string; holds back text that may become one. */
export class StopStrings {
  #held = '';
  found = false;

  /** @param {readonly string[]} strings */
  constructor(strings) {
    this.strings = strings.filter((string) => string !== '');
  }

  /** Add text; return what certainly precedes a stop string. @param {string} text */
  add(text) {
    if (this.found) return '';
    const all = this.#held + text;
    const places = this.strings.map((string) => all.indexOf(string)).filter((place) => place >= 0);
    if (places.length) {
      this.found = true;
      this.#held = '';
      return all.slice(0, Math.min(...places));
    }
    const longest = Math.max(0, ...this.strings.map(({ length }) => length - 1));
    let kept = Math.min(longest, all.length);
    while (kept && !this.strings.some((string) => string.startsWith(all.slice(all.length - kept)))) kept -= 1;
    this.#held = all.slice(all.length - kept);
    return all.slice(0, all.length - kept);
  }

  /** Return the text that was held back. */
  end() {
    const text = this.#held;
    this.#held = '';
    return text;
  }
}
