/** <pyruntime-model>: a model that runs on the visitor's GPU, in any page. */
import type {
  GenerateOptions, InferenceSession, Piece, ProgressEvent, SessionOptions, Tensor, TextGenerator,
} from './pyruntime.js';

/** `error`'s detail is `{ error }`. None of the events bubbles. */
export interface PyruntimeModelEventMap {
  /** While the model, and Python where it is not there yet, loads; `totalProgress` from 0 to 1. */
  progress: CustomEvent<ProgressEvent & { totalProgress: number }>;
  load: CustomEvent<{ session: InferenceSession }>;
  /** After every run. `ms`: how long it took. */
  result: CustomEvent<{ outputs: Record<string, Tensor>; inputs: Record<string, Tensor>; ms: number }>;
  /** A token, with `input="text"` and `input="chat"`. */
  piece: CustomEvent<{ piece: Piece }>;
  /** A text is at its end, or was stopped. */
  text: CustomEvent<{ text: string; tokens: number; ms: number; stopped: boolean }>;
  /** Loading or a run has failed; the widget says so, too. */
  error: CustomEvent<{ error: Error }>;
}

export declare class PyruntimeModel extends HTMLElement {
  /** Where the model is, or a language model's folder; another value loads another model. */
  src: string;
  /** The model compiled ahead of time: it runs without Python. */
  plan: string;
  /** An image that is shown until the model is loaded. */
  poster: string;
  /** A description of the widget for screen readers. */
  alt: string;
  /**
   * 'draw', 'image', 'json' (the default) or 'none': only the page's `run`. Of a language model's folder 'text': it continues
   * what is typed; 'chat': a conversation, for models with a chat template.
   */
  input: string;
  /** What the field of a language model holds at first. */
  prompt: string;
  /** Which of a language model's files: 'q4', 'q4f16', 'fp16', ...; another value loads the model anew. */
  dtype: string;
  /** Names of the classes with commas between, or the URL of a .txt or .json file of them. */
  labels: string;
  /** Mean of each channel, of values from 0 to 1; default 0. */
  mean: string;
  /** Standard deviation of each channel; default 1. */
  std: string;
  /**
   * 'eager': at once; 'lazy': when it comes near the view; 'auto' (the default): like 'lazy' without a poster, and with one
   * when the visitor asks.
   */
  loading: string;
  /** Options of the session, read when the model is loaded. */
  options: SessionOptions;
  /** How a language model writes: temperature, seed, maxNewTokens, stop, ... */
  generateOptions: GenerateOptions;
  /** The language model, once it is loaded. */
  readonly generator: TextGenerator | null;
  readonly loaded: boolean;
  readonly session: InferenceSession | null;
  /** Load the model now, whatever `loading` says. */
  load(): Promise<InferenceSession>;
  /** Run the model (loaded first if it is not) on tensors, typed arrays or nested arrays, and show the result. */
  run(inputs: Readonly<Record<string, unknown>>): Promise<Record<string, Tensor>>;

  addEventListener<K extends keyof PyruntimeModelEventMap>(
    type: K, listener: (this: PyruntimeModel, event: PyruntimeModelEventMap[K]) => unknown,
    options?: boolean | AddEventListenerOptions): void;
  addEventListener(
    type: string, listener: EventListenerOrEventListenerObject, options?: boolean | AddEventListenerOptions): void;
}

/** The attributes of `<pyruntime-model>` in JSX, besides those that every element has. */
export interface PyruntimeModelAttributes {
  src?: string;
  plan?: string;
  'cache-plan'?: boolean | '';
  poster?: string;
  alt?: string;
  input?: 'draw' | 'image' | 'json' | 'none' | 'text' | 'chat';
  prompt?: string;
  dtype?: string;
  'kv-cache-bits'?: '8' | '4';
  precision?: 'float16' | 'float32';
  labels?: string;
  mean?: string;
  std?: string;
  loading?: 'auto' | 'eager' | 'lazy';
  // Attributes, listeners, `ref` and `key` are the framework's, of which nothing is known here.
  [attribute: string]: any;
}

interface PyruntimeElements {
  'pyruntime-model': PyruntimeModelAttributes;
}

declare global {
  interface HTMLElementTagNameMap {
    'pyruntime-model': PyruntimeModel;
  }
  namespace JSX {
    interface IntrinsicElements extends PyruntimeElements {}
  }
}

// @ts-ignore React may not be installed.
declare module 'react' {
  namespace JSX {
    interface IntrinsicElements extends PyruntimeElements {}
  }
}

// @ts-ignore Preact may not be installed.
declare module 'preact' {
  namespace JSX {
    interface IntrinsicElements extends PyruntimeElements {}
  }
}

// @ts-ignore Solid may not be installed.
declare module 'solid-js' {
  namespace JSX {
    interface IntrinsicElements extends PyruntimeElements {}
  }
}
