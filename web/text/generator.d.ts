/** Text generation with language models: the part of pyruntime.d.ts for text. */
import type { InferenceSession, ProgressEvent, SessionOptions } from '../pyruntime.js';

/** A message of a conversation, in the format of chat templates. */
export interface ChatMessage {
  role: string;
  content: unknown;
  readonly [name: string]: unknown;
}

/**
 * The URL of a folder; files that were dropped or chosen together; Blobs by path; or a reader: `has` says whether a file exists, `read`
 * resolves to the file, or to null.
 */
export type FolderSource = string | URL | Iterable<File> | ReadonlyMap<string, Blob> | {
  readonly name: string;
  has(path: string, signal?: AbortSignal): Promise<boolean>;
  read(path: string, options?: {
    signal?: AbortSignal;
    onProgress?: (loaded: number, total: number | undefined) => void;
  }): Promise<Blob | null>;
};

export interface GeneratorOptions {
  /**
   * Variant of a transformers.js model: 'q4f16', 'q4', 'fp16', 'fp32', 'q8', ... Default: that of its config.json, else the first of these
   * that exists.
   */
  dtype?: string;
  /**
   * Quantizes the floating-point caches of GroupQueryAttention to this many bits: 8 takes 0.27 of float32's memory, 4 takes 0.14. Default:
   * caches are not quantized.
   */
  kvCacheBits?: 8 | 4;
  /** Phase 'file' is a file of the folder, with its path in `file`; other phases are those of a session. */
  onProgress?: (event: ProgressEvent) => void;
  /** Aborts loading and downloads; `create` rejects with the signal's reason. */
  signal?: AbortSignal;
  sessionOptions?: Omit<SessionOptions, 'externalData' | 'preferredOutputLocation' | 'onProgress' | 'signal'>;
}

/** Options in order of application. Defaults are those of the folder's generation_config.json. */
export interface SamplingOptions {
  /** Divides positive logits of tokens in prompt and text, and multiplies negative ones; default 1. */
  repetitionPenalty?: number;
  /** Subtracted from the logits of generated tokens; default 0. */
  presencePenalty?: number;
  /** Subtracted from the logit of a token for each time that it was generated; default 0. */
  frequencyPenalty?: number;
  /** Divides the logits; 0 selects the most likely token. */
  temperature?: number;
  /** Number of most likely tokens to sample from; 0: all. */
  topK?: number;
  /** Keep the smallest set of most likely tokens whose probabilities sum to at least this. */
  topP?: number;
  /** Minimum probability relative to the most likely token. */
  minP?: number;
}

export interface GenerateOptions extends SamplingOptions {
  /** Maximum number of generated tokens; default 512. */
  maxNewTokens?: number;
  /** Seed of the random generator: the same seed gives the same text on the same device. Default: random. */
  seed?: number;
  /** The text ends before the first occurrence of one of these strings. */
  stop?: string | readonly string[];
  /** Tokens that end the text; default: those of the folder. */
  endTokens?: readonly number[];
  /** Aborts generation at the next token; the iterator rejects with the signal's reason, and the text's GPU memory is released. */
  signal?: AbortSignal;
  /** Whether pieces have `logProbability`, which takes a sum over the whole vocabulary on the GPU; default true. */
  logProbabilities?: boolean;
  /** Number of most likely tokens in each piece's `top`; default 0. */
  topLogProbabilities?: number;
  /**
   * Modifies the logits before a token is selected. `ids` are those of prompt and text so far. Each token's logits are then read back
   * before the next one is computed, which slows down generation.
   */
  processLogits?: (logits: Float32Array, ids: readonly number[]) => void;
  /**
   * Whether the text's caches stay on the GPU, so that a text that starts like it (the next turn of a conversation) only computes new
   * tokens; default true. `forget` releases them.
   */
  keepPrompt?: boolean;
  /**
   * Generate beyond the model's context: the model sees at most this many tokens, or `contextLength` if that is less (also for Infinity).
   * When the window is full, the text restarts with the first `sinks` tokens and the last half of the rest, as if they were the prompt; a
   * longer prompt is truncated the same way. Default: the text ends with the context, and a longer prompt is an error. Models in which all
   * attention is local have no limit, and `Infinity` is the whole text: rows that no later token attends to are released.
   */
  window?: number;
  /**
   * Number of leading tokens that stay in the window. Default: that of genai_config.json (`search.sinks`), else 1 if the text starts with
   * the token that starts the model's texts (BOS), and 0 if not.
   */
  sinks?: number;
  /** Variables of the chat template: { tools, enable_thinking: false, ... }. */
  templateValues?: Readonly<Record<string, unknown>>;
}

export interface TokenProbability {
  readonly id: number;
  readonly text: string;
  /** Natural logarithm of the model's probability, before penalties and temperature. */
  readonly logProbability: number;
}

/** A token, and the text that is certain with it: whole characters that cannot become a stop string. */
export interface Piece extends Omit<TokenProbability, 'logProbability'> {
  /** Natural logarithm of the model's probability, before penalties and temperature; absent with `logProbabilities: false`. */
  readonly logProbability?: number;
  /** The most likely tokens, with `topLogProbabilities`. */
  readonly top?: readonly TokenProbability[];
  /**
   * Milliseconds for the model, for selecting the token, and for decoding text. If the GPU selects tokens, `sampling` is 0 and `model` is
   * the time between two batches divided by their tokens.
   */
  readonly times: { readonly model: number; readonly sampling: number; readonly text: number };
  /** Number of tokens computed for this one: at first the new ones of the prompt, then 1; more when a window restarts. */
  readonly promptTokens: number;
  /** Set in the last piece: an end token, a stop string, or the limit of `maxNewTokens` or of the model's context. */
  readonly finishReason?: 'end' | 'stop' | 'length';
}

/**
 * A language model from a folder in the format of transformers.js or onnxruntime-genai.
 *
 *   const generator = await TextGenerator.create('models/austen/');
 *   for await (const { text } of generator.generate('It is a truth', { seed: 1 })) console.log(text);
 *
 * The GPU selects the tokens, several steps ahead of those that have arrived, which are read back in batches every few milliseconds; tokens
 * computed beyond the end are dropped. Tokens are selected one by one in JavaScript if the session is not on the GPU, the model's ids, mask
 * or positions are not integers [batch, tokens] or its logits not [batch, tokens, words], it has no caches, `processLogits` is given, more
 * than 256 of the most likely tokens are requested, or there are penalties and the model does not state its vocabulary size.
 */
export declare class TextGenerator {
  private constructor();
  static create(folder: FolderSource, options?: GeneratorOptions): Promise<TextGenerator>;
  readonly session: InferenceSession;
  /** Maximum number of tokens of prompt and text that the model was made for; Infinity if unknown. */
  readonly contextLength: number;
  encode(text: string): number[];
  decode(ids: readonly number[]): string;
  /** Continue a text or a conversation. Leaving the loop ends generation. Several loops may run concurrently. */
  generate(input: string | readonly ChatMessage[], options?: GenerateOptions): AsyncGenerator<Piece, void, void>;
  /** Release the caches that are kept for a text that starts like the last one. */
  forget(): void;
  /** Release the model and all its texts. A second call has no effect. */
  release(): Promise<void>;
}
