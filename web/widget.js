// @ts-check
/**
 * <pyruntime-model>: a model that runs on the visitor's GPU, in any page.
 *
 *   <script type="module" src="https://.../web/widget.js"></script>
 *   <pyruntime-model src="digits.onnx" input="draw" labels="0,1,2,3,4,5,6,7,8,9"></pyruntime-model>
 *
 * All widgets of a page share one Python. docs/widget.md has attributes, events, parts and variables.
 */

import { InferenceSession, TextGenerator } from './pyruntime.js';
import { connection, costOfPython } from './ui/connection.js';
import { h } from './ui/dom.js';
import { INPUTS } from './ui/widget/inputs.js';
import { readLabels } from './ui/widget/labels.js';
import { show } from './ui/widget/outputs.js';
import { progressBar, runBar } from './ui/widget/progress.js';
import { styleSheet } from './ui/widget/style.js';
import { numbersTensor, scaleOf } from './ui/widget/tensors.js';
import { WRITING } from './ui/widget/writing.js';

/** @typedef {import('./pyruntime.js').Feeds} Feeds */

/** Without a browser (server-side rendering) the class is only a placeholder. */
const Base = /** @type {typeof HTMLElement} */ (globalThis.HTMLElement ?? class {});

const LOADS = ['src', 'plan', 'dtype'];
const LOOKS = ['poster', 'alt', 'input', 'labels', 'mean', 'std', 'loading', 'prompt'];

/** Milliseconds without input after which the result is announced. */
const REST_MS = 700;

export class PyruntimeModel extends Base {
  static observedAttributes = [...LOADS, ...LOOKS];

  /** Session options, read when the model is loaded. @type {import('./pyruntime.js').SessionOptions} */
  options = {};

  /** Generation options, for `input="text"` and `input="chat"`. @type {import('./pyruntime.js').GenerateOptions} */
  generateOptions = {};

  /** @type {InferenceSession | null} */
  #session = null;
  /** @type {TextGenerator | null} */
  #generator = null;
  /** Stops the current generation. */
  #stopWriting = () => {};
  /** @type {Promise<InferenceSession> | null} */
  #loading = null;
  /** @type {AbortController | null} */
  #control = null;
  /** @type {IntersectionObserver | null} */
  #observer = null;
  /** The latest input, while a run is in progress. @type {Feeds | null} */
  #next = null;
  #running = false;
  /** Number of times that the visitor has started a new input. */
  #cleared = 0;
  #speak = 0;
  /** @type {readonly string[]} */
  #labels = [];
  /** @type {{frame: HTMLElement, output: HTMLElement, message: HTMLElement, words: HTMLElement} | null} */
  #parts = null;

  connectedCallback() {
    if (!this.#parts) this.#build();
    queueMicrotask(() => { // the importing module may set `env` first
      if (this.isConnected && !this.#session && !this.#loading) this.#await();
    });
  }

  disconnectedCallback() {
    queueMicrotask(() => {
      if (!this.isConnected) this.#unload(); // not if it was only moved
    });
  }

  /** @param {string} name @param {string | null} before @param {string | null} now */
  attributeChangedCallback(name, before, now) {
    if (before === now || !this.#parts) return;
    if (name === 'alt') this.#name();
    else if (LOADS.includes(name) && (name !== 'dtype' || this.#writes)) this.#reload();
    else if (name === 'input' && this.#session && Boolean(this.#generator) !== this.#writes) this.#reload();
    else if (this.#session) this.#ready(this.#session);
    else if (!this.#loading) this.#await();
  }

  /** Whether the model is loaded. */
  get loaded() {
    return this.#session !== null;
  }

  /** The session, once the model is loaded. */
  get session() {
    return this.#session;
  }

  /** The language model, once it is loaded. */
  get generator() {
    return this.#generator;
  }

  /** Whether the model is a language model's folder. */
  get #writes() {
    return (this.getAttribute('input') ?? '') in WRITING;
  }

  /** Load the model now, independent of `loading`. @returns {Promise<InferenceSession>} */
  load() {
    this.#loading ??= this.#load();
    return this.#loading;
  }

  /**
   * Run the model, loading it if necessary, and show the result.
   * @param {Record<string, unknown>} inputs tensors, typed arrays or nested arrays by input name
   * @returns {Promise<Record<string, import('./pyruntime.js').Tensor>>}
   */
  async run(inputs) {
    const session = await this.load();
    const feeds = Object.entries(inputs).map(([name, value]) => {
      const input = session.inputMetadata.find((known) => known.name === name);
      return [name, input?.isTensor ? numbersTensor(input, value) : value];
    });
    return this.#run(session, Object.fromEntries(feeds), true);
  }

  #build() {
    const root = this.shadowRoot ?? this.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [styleSheet()];
    const frame = h('div', { class: 'frame' });
    const message = h('div', { part: 'message', role: 'alert', hidden: true });
    const words = h('div', { class: 'hidden', role: 'status' });
    const output = h('div', { part: 'output' });
    root.replaceChildren(h('div', { part: 'base', role: 'group' }, frame, message, words));
    this.#parts = { frame, output, message, words };
    this.#name();
  }

  #name() {
    const text = this.getAttribute('alt') || 'A model that runs in this page';
    this.shadowRoot?.querySelector('[part="base"]')?.setAttribute('aria-label', text);
  }

  /** Wait until the model is to be loaded: immediately, near the viewport, or when `load` is called. */
  #await() {
    this.#observer?.disconnect();
    const [loading, poster] = [this.getAttribute('loading') ?? 'auto', this.getAttribute('poster')];
    const { isDear, rate } = connection();
    const asks = isDear && loading === 'auto' && !this.hasAttribute('plan');
    const start = h('button', { type: 'button', part: 'start' }, `Run the model${asks ? `; loads Python${costOfPython(rate)}` : ''}`);
    start.addEventListener('click', () => {
      start.disabled = true;
      this.load().then(() => this.#focus(), () => {}); // errors are shown by `load`
    });
    const picture = poster ? h('img', { src: poster, alt: '' }) : h('slot', { name: 'poster' });
    this.#show(h('div', { part: 'poster' }, picture, start));
    if (!this.getAttribute('src')) {
      start.disabled = true;
    } else if (loading === 'eager') {
      this.load().catch(() => {});
    } else if (loading === 'lazy' || !(this.#hasPoster() || asks)) {
      this.#observer = new IntersectionObserver((seen) => {
        if (seen.some(({ isIntersecting }) => isIntersecting)) this.load().catch(() => {});
      }, { rootMargin: '200px' });
      this.#observer.observe(this);
    }
  }

  #hasPoster() {
    return this.hasAttribute('poster') || this.querySelector('[slot="poster"]') !== null;
  }

  async #load() {
    this.#observer?.disconnect();
    const control = new AbortController();
    this.#control = control;
    const src = this.getAttribute('src');
    try {
      if (!src) throw new TypeError('<pyruntime-model> needs the attribute src: where the model is');
      const report = this.#reporter();
      const url = new URL(src, this.ownerDocument.baseURI);
      const options = { signal: control.signal, onProgress: report };
      const [plan, precision] = ['plan', 'precision'].map((name) => this.getAttribute(name));
      const asked = { ...(plan && { plan: new URL(plan, this.ownerDocument.baseURI) }), ...(precision && { precision }) };
      const sessionOptions = /** @type {any} */ ({ cachePlan: this.hasAttribute('cache-plan'), ...asked, ...this.options });
      const [session, labels] = await Promise.all([
        this.#writes ? this.#createGenerator(url, { ...options, sessionOptions }) : InferenceSession.create(url, { ...sessionOptions, ...options }),
        readLabels(this.getAttribute('labels'), this.ownerDocument.baseURI),
      ]);
      this.#labels = labels;
      this.#session = session;
      this.#ready(session);
      this.#tell('load', { session });
      return session;
    } catch (error) {
      if (!control.signal.aborted) this.#fail(error, true);
      throw error;
    }
  }

  /** @param {URL} url @param {{signal: AbortSignal, onProgress: (event: import('./pyruntime.js').ProgressEvent) => void, sessionOptions: import('./pyruntime.js').SessionOptions}} options */
  async #createGenerator(url, options) {
    const [dtype, kvCacheBits] = ['dtype', 'kv-cache-bits'].map((name) => /** @type {any} */ (this.getAttribute(name) ?? undefined));
    const generator = await TextGenerator.create(url, { ...options, dtype, kvCacheBits });
    if (options.signal.aborted) {
      await generator.release();
      options.signal.throwIfAborted();
    }
    this.#generator = generator;
    return generator.session;
  }

  /** Create the listener that shows the progress of loading. */
  #reporter() {
    const { element, add } = progressBar();
    const poster = this.#hasPoster() ? this.shadowRoot?.querySelector('[part="poster"]') : null;
    if (poster) poster.after(element);
    else this.#show(element);
    this.shadowRoot?.querySelector('[part="start"]')?.toggleAttribute('disabled', true);
    return (/** @type {import('./pyruntime.js').ProgressEvent} */ event) => {
      this.#tell('progress', { ...event, totalProgress: add(event) });
    };
  }

  /** Show the controls of a loaded model. @param {InferenceSession} session */
  #ready(session) {
    if (!this.#parts) return;
    const way = this.getAttribute('input') ?? 'json';
    const { output } = this.#parts;
    output.replaceChildren();
    this.#say('');
    this.#stopWriting();
    if (this.#generator && this.#writes) {
      this.#showWriting(WRITING[way], this.#generator);
      return;
    }
    try {
      const makeControls = INPUTS[way];
      if (!makeControls) throw new TypeError(`input is one of ${[...Object.keys(INPUTS), ...Object.keys(WRITING)].join(', ')}, not "${way}"`);
      const controls = makeControls({
        inputs: session.inputMetadata,
        scale: scaleOf(this.getAttribute('mean'), this.getAttribute('std')),
        give: (feeds, final) => this.#follow(feeds, final),
        clear: () => {
          this.#next = null;
          this.#cleared += 1;
          output.replaceChildren();
          this.#read('');
        },
        fail: (error) => this.#fail(error, false),
      });
      const input = h('div', { part: 'input' }, ...controls);
      this.#show(h('div', { class: way === 'draw' || way === 'image' ? 'ready two' : 'ready' }, input, output));
    } catch (error) {
      this.#fail(error, false);
    }
  }

  /** @param {typeof WRITING[string]} makeControls @param {TextGenerator} generator */
  #showWriting(makeControls, generator) {
    const { elements, stop } = makeControls({
      generator,
      prompt: this.getAttribute('prompt') ?? '',
      options: () => this.generateOptions,
      tell: (piece) => this.#tell('piece', { piece }),
      done: (result) => this.#tell('text', result),
      read: (words) => this.#read(words, true),
      fail: (error) => this.#fail(error, false),
    });
    this.#stopWriting = stop;
    this.#show(h('div', { class: 'ready' }, h('div', { part: 'input' }, ...elements)));
  }

  /**
   * Run on the latest input, and again if it has changed meanwhile; inputs in between are skipped.
   * @param {Feeds} feeds
   * @param {boolean} [final]
   */
  async #follow(feeds, final = false) {
    this.#next = feeds;
    if (this.#running) return;
    this.#running = true;
    try {
      while (this.#next && this.#session) {
        const now = this.#next;
        this.#next = null;
        await this.#run(this.#session, now, final).catch(() => {}); // the error was shown already
      }
    } finally {
      this.#running = false;
    }
  }

  /** @param {InferenceSession} session @param {Feeds} feeds @param {boolean} final */
  async #run(session, feeds, final) {
    const begin = performance.now();
    const cleared = this.#cleared;
    const { element, onProgress } = runBar((bar) => session === this.#session && this.#parts?.output.replaceChildren(bar));
    try {
      const outputs = await session.run(feeds, { onProgress }).finally(() => element.remove());
      const ms = performance.now() - begin;
      if (session !== this.#session) return outputs;
      const { elements, words } = show(outputs, this.#labels);
      this.#say('');
      if (cleared === this.#cleared) {
        this.#parts?.output.replaceChildren(...elements);
        this.#read(words, final);
      }
      this.#tell('result', { outputs, inputs: feeds, ms });
      return outputs;
    } catch (error) {
      this.#fail(error, false);
      throw error;
    }
  }

  /** Announce a result to screen readers when there is no further input. @param {string} words @param {boolean} [now] */
  #read(words, now = false) {
    clearTimeout(this.#speak);
    this.#speak = setTimeout(() => {
      if (this.#parts) this.#parts.words.textContent = words;
    }, now ? 0 : REST_MS);
  }

  /** @param {unknown} error @param {boolean} whileLoading adds a button that tries again */
  #fail(error, whileLoading) {
    const { message } = /** @type {Error} */ (error);
    this.#say(message.split('\n')[0] || String(error));
    if (whileLoading) {
      this.#loading = null;
      const again = h('button', { class: 'quiet', type: 'button', part: 'retry' }, 'Try again');
      again.addEventListener('click', () => {
        this.#say('');
        this.load().then(() => this.#focus(), () => {});
      });
      this.#show(again);
      this.shadowRoot?.querySelector('[part="base"]')?.classList.add('failed');
    }
    this.#tell('error', { error });
  }

  /** @param {string} message */
  #say(message) {
    this.shadowRoot?.querySelector('[part="base"]')?.classList.remove('failed');
    if (this.#parts) this.#parts.message.textContent = message;
    this.#parts?.message.toggleAttribute('hidden', !message);
  }

  /** @param {HTMLElement} element */
  #show(element) {
    this.#parts?.frame.replaceChildren(element);
  }

  /** Move the focus to the controls of a model that was started by keyboard. */
  #focus() {
    const control = this.shadowRoot?.querySelector('[part="input"] :is(canvas, input, textarea, button)');
    /** @type {HTMLElement | null | undefined} */ (control)?.focus();
  }

  #unload() {
    this.#observer?.disconnect();
    this.#control?.abort();
    this.#stopWriting();
    const held = this.#generator ?? this.#session;
    held?.release().catch(() => {}); // a worker that has ended has nothing to release
    this.#generator = null;
    this.#session = null;
    this.#loading = null;
    this.#next = null;
  }

  #reload() {
    const wasAsked = this.#loading !== null;
    this.#unload();
    this.#say('');
    this.#await();
    if (wasAsked) this.load().catch(() => {});
  }

  /** @param {string} type @param {object} detail */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

for (const name of PyruntimeModel.observedAttributes) {
  Object.defineProperty(PyruntimeModel.prototype, name, {
    configurable: true,
    enumerable: true,
    get() { return this.getAttribute(name) ?? ''; },
    set(value) {
      if (value === null || value === undefined) this.removeAttribute(name);
      else this.setAttribute(name, value);
    },
  });
}

if (globalThis.customElements && !customElements.get('pyruntime-model')) customElements.define('pyruntime-model', PyruntimeModel);
