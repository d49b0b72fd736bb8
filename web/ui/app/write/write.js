// @ts-check
/** Text generation demo: a prompt, streamed text, the model's alternatives, timing; a conversation if the model supports it. */

import { SITE } from '../../../addresses.js';
import { byId, h, onEnter, showRunning } from '../../dom.js';
import { TextGenerator } from '../../../pyruntime.js';
import { explain } from '../errors.js';
import { formatBytes } from '../format.js';
import { isKeeping } from '../model/store.js';
import { Chat } from './chat.js';
import { Pace } from './pace.js';
import { WrittenText } from './text.js';

/** @typedef {import('./source.js').Source} Source */

const OWN = new URL('models/austen/', SITE);
const PLAN = new URL('onnx/model_q4.plan', OWN);
const PROMPTS = ['It is a truth universally acknowledged', 'The next morning, Emma', '"I cannot believe it," said Elizabeth'];
const CANDIDATES = 6;

/** @param {string} id @returns {number} */
function numberOf(id) {
  return Number(/** @type {HTMLInputElement} */ (byId(id)).value);
}

export class Write {
  /** @type {Promise<TextGenerator> | null} */
  #generator = null;
  /** The source of the generator's model. @type {Source | null} */
  #source = null;
  /** @type {AbortController | null} */
  #control = null;
  /** @type {AbortController | null} */
  #loading = null;

  #isSoftware;

  /** @param {() => void} onKept something more is kept on this computer @param {Promise<boolean>} isSoftware whether the adapter is a software adapter */
  constructor(onKept, isSoftware) {
    this.onKept = onKept;
    this.#isSoftware = isSoftware;
    this.prompt = /** @type {HTMLTextAreaElement} */ (byId('write-prompt'));
    this.go = /** @type {HTMLButtonElement} */ (byId('write-go'));
    this.stop = /** @type {HTMLButtonElement} */ (byId('write-stop'));
    this.text = new WrittenText(byId('write-text'), byId('write-candidates'));
    this.chat = new Chat(byId('write-chat'), (messages, options) => this.#pieces(messages, options));
    this.go.addEventListener('click', () => this.write());
    this.stop.addEventListener('click', () => this.#control?.abort());
    onEnter(this.prompt, () => {
      if (!this.go.hidden) this.write();
    });
    byId('write-again').addEventListener('click', () => {
      /** @type {HTMLInputElement} */ (byId('write-seed')).value = String(numberOf('write-seed') + 1);
      this.write();
    });
    const heat = /** @type {HTMLInputElement} */ (byId('write-temperature'));
    const tell = () => { byId('write-temperature-value').textContent = heat.value === '0' ? '0, the likeliest' : heat.value; };
    heat.addEventListener('input', tell);
    tell();
    byId('write-prompts').append(...PROMPTS.map((prompt) => h('button', { type: 'button', class: 'quiet small', on: {
      click: () => {
        this.prompt.value = prompt;
        this.write();
      },
    } }, `${prompt} …`)));
  }

  /** Options that the visitor chose for continuing a text; a conversation uses the model's generation_config.json. */
  get #options() {
    const [temperature, maxNewTokens, seed] = ['write-temperature', 'write-length', 'write-seed'].map(numberOf);
    return { temperature, maxNewTokens: Math.max(1, Math.floor(maxNewTokens)), seed: Math.floor(seed) };
  }

  /** Load another model from a folder. @param {Source} source */
  async open(source) {
    this.#control?.abort();
    this.#loading?.abort();
    const old = this.#generator;
    this.#generator = null;
    this.#source = source;
    byId('write-error').replaceChildren();
    old?.then((generator) => generator.release(), () => {});
    try {
      const talks = await source.talks();
      byId('write-one').hidden = talks;
      this.chat.show(talks ? source.name : null);
      byId('write-model').textContent = `${source.name}, ${formatBytes(source.bytes)}`;
      await this.#load();
    } catch (error) {
      this.#fail(error, `${source.name} cannot be used.`);
    }
  }

  #load() {
    this.#generator ??= this.#create().catch((error) => {
      this.#generator = null;
      throw error;
    });
    return this.#generator;
  }

  async #create() {
    const control = new AbortController();
    this.#loading = control;
    const place = byId('write-progress');
    /** @type {Map<string, HTMLElement>} */
    const files = new Map();
    const onProgress = (/** @type {import('../../../pyruntime.js').ProgressEvent} */ { file, loaded = 0, total }) => {
      if (!file) return;
      const line = files.get(file) ?? h('li', {}, h('span', {}), h('progress', { max: 1, 'aria-label': file }));
      files.set(file, line);
      place.append(line);
      const [words, bar] = /** @type {[HTMLElement, HTMLProgressElement]} */ ([...line.children]);
      words.textContent = `${file}: ${formatBytes(loaded)}${total ? ` of ${formatBytes(total)}` : ''}`;
      if (total) bar.value = loaded / total;
    };
    this.#say('Loading the model');
    try {
      // The plan's kernels are for GPUs: on a software adapter, those that Python chooses are faster.
      const plan = this.#source || await this.#isSoftware ? undefined : PLAN;
      const generator = await TextGenerator.create(this.#source?.folder ?? OWN, {
        onProgress, signal: control.signal, sessionOptions: { plan, cachePlan: isKeeping() } });
      this.#say('The model is loaded');
      this.onKept();
      return generator;
    } finally {
      place.replaceChildren();
      this.#loading = null;
    }
  }

  /**
   * @param {string | import('../../../pyruntime.js').ChatMessage[]} input
   * @param {import('../../../pyruntime.js').GenerateOptions} options
   */
  async* #pieces(input, options) {
    const generator = await this.#load();
    // The page's model ends chapters, after which the text continues; other models end their answers.
    const endTokens = this.#source ? undefined : [];
    yield* generator.generate(input, { window: Infinity, endTokens, ...options });
  }

  /** Continue the prompt. */
  async write() {
    this.#control?.abort();
    const control = new AbortController();
    this.#control = control;
    const prompt = this.prompt.value.trimEnd();
    byId('write-error').replaceChildren();
    byId('write-spent').replaceChildren();
    this.#busy(true);
    this.text.begin(prompt);
    let pace = new Pace();
    try {
      await this.#load();
      control.signal.throwIfAborted();
      this.#say('Writing');
      pace = new Pace();
      for await (const piece of this.#pieces(prompt, { ...this.#options, signal: control.signal, topLogProbabilities: CANDIDATES })) {
        if (control.signal.aborted) break;
        this.text.add(piece);
        pace.add(piece);
        byId('write-facts').textContent = pace.words;
      }
      if (this.#control === control) this.#say(`Written: ${this.text.text}`);
    } catch (error) {
      if (!control.signal.aborted) this.#fail(error, 'It did not write.');
      else if (this.#control === control) this.#say('Stopped');
    }
    if (this.#control !== control) return;
    byId('write-spent').replaceChildren(...[pace.chart()].filter((chart) => chart !== null));
    this.#busy(false);
  }

  /** @param {boolean} on */
  #busy(on) {
    showRunning(this.go, this.stop, on);
    byId('write-again').toggleAttribute('disabled', on);
  }

  /** Announce for screen readers, once at the start and once at the end. @param {string} words */
  #say(words) {
    byId('write-status').textContent = words;
  }

  /** @param {unknown} error @param {string} title */
  #fail(error, title) {
    this.#say('');
    byId('write-error').replaceChildren(explain(error, { title }));
  }
}
