/** <pyruntime-model>: a model that runs on the visitor's GPU, in any page. */
import type {
  GenerateOptions, InferenceSession, Piece, ProgressEvent, SessionOptions, Tensor, TextGenerator,
} from './pyruntime.js';

/** `error`'s detail is `{ error }`. No event bubbles. */
export interface PyruntimeModelEventMap {
  /** While the model, and Python if necessary, loads; `totalProgress` is from 0 to 1. */
  progress: CustomEvent<ProgressEvent & { totalProgress: number }>;
  load: CustomEvent<{ session: InferenceSession }>;
  /** After every run; `ms` is its duration. */
  result: CustomEvent<{ outputs: Record<string, Tensor>; inputs: Record<string, Tensor>; ms: number }>;
  /** After each token, with `input="text"` and `input="chat"`. */
  piece: CustomEvent<{ piece: Piece }>;
  /** When a text has ended, or was stopped. */
  text: CustomEvent<{ text: string; tokens: number; ms: number; stopped: boolean }>;
  /** When loading or a run has failed; the widget shows the error too. */
  error: CustomEvent<{ error: Error }>;
}

export declare class PyruntimeModel extends HTMLElement {
  /** URL of the model, or of a language model's folder; another value loads another model. */
  src: string;
  /** The model compiled ahead of time: it runs without Python. */
  plan: string;
  /** URL of an image to show until the model is loaded. */
  poster: string;
  /** A description of the widget for screen readers. */
  alt: string;
  /**
   * 'draw', 'image', 'json' (the default) or 'none': only the page's `run`. For a language model's folder 'text': continues the text that
   * is typed; 'chat': a conversation, for models with a chat template.
   */
  input: string;
  /** Initial text of a language model's field. */
  prompt: string;
  /** Variant of a language model: 'q4', 'q4f16', 'fp16', ...; another value reloads the model. */
  dtype: string;
  /** Names of the classes, separated by commas, or the URL of a .txt or .json file of names. */
  labels: string;
  /** Mean of each channel, for values from 0 to 1; default 0. */
  mean: string;
  /** Standard deviation of each channel; default 1. */
  std: string;
  /**
   * 'eager': load immediately; 'lazy': when the element comes near the viewport; 'auto' (the default): like 'lazy' without a poster, with
   * one when the visitor clicks.
   */
  loading: string;
  /** Session options, read when the model is loaded. */
  options: SessionOptions;
  /** Generation options: temperature, seed, maxNewTokens, stop, ... */
  generateOptions: GenerateOptions;
  /** The language model, once it is loaded. */
  readonly generator: TextGenerator | null;
  readonly loaded: boolean;
  readonly session: InferenceSession | null;
  /** Load the model now, independent of `loading`. */
  load(): Promise<InferenceSession>;
  /** Run the model, loading it if necessary, on tensors, typed arrays or nested arrays, and show the result. */
  run(inputs: Readonly<Record<string, unknown>>): Promise<Record<string, Tensor>>;

  addEventListener<K extends keyof PyruntimeModelEventMap>(
    type: K, listener: (this: PyruntimeModel, event: PyruntimeModelEventMap[K]) => unknown,
    options?: boolean | AddEventListenerOptions): void;
  addEventListener(
    type: string, listener: EventListenerOrEventListenerObject, options?: boolean | AddEventListenerOptions): void;
}

/** The attributes of `<pyruntime-model>` in JSX, in addition to those of every element. */
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
  // Attributes, listeners, `ref` and `key` are defined by the framework, which is unknown here.
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
