/** Text from language models: what pyruntime.d.ts exports of it. */
import type { InferenceSession, ProgressEvent, SessionOptions } from '../pyruntime.js';

/** A turn of a conversation, as chat templates take it. */
export interface ChatMessage {
  role: string;
  content: unknown;
  readonly [name: string]: unknown;
}

/**
 * The URL of a folder; files that were dropped or chosen together; Blobs by path; or what reads the folder: `has` says whether
 * there is a file, `read` resolves to it, or to null.
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
   * Which of a transformers.js folder's files: 'q4f16', 'q4', 'fp16', 'fp32', 'q8', ... Default: what its config.json says, else
   * the first of these that is there.
   */
  dtype?: string;
  /**
   * The caches of a model that GroupQueryAttention reads and writes as floats are packed to so many bits: with 8 they take 0.27
   * of float32's memory, with 4 0.14. Default: they stay as the model has them.
   */
  kvCacheBits?: 8 | 4;
  /** Phase 'file' is a file of the folder, `file` its path; the others are those of a session. */
  onProgress?: (event: ProgressEvent) => void;
  /** Ends the loading, downloads included; nothing of it stays, and `create` rejects with the signal's reason. */
  signal?: AbortSignal;
  sessionOptions?: Omit<SessionOptions, 'externalData' | 'preferredOutputLocation' | 'onProgress' | 'signal'>;
}

/** In the order in which they are applied. What is not given is as the folder's generation_config.json advises. */
export interface SamplingOptions {
  /** Logits above 0 of tokens that are there already are divided by it, those below multiplied; default 1. */
  repetitionPenalty?: number;
  /** Taken off the logits of tokens that have been generated; default 0. */
  presencePenalty?: number;
  /** Taken off the logit of a token for each time that it has been generated; default 0. */
  frequencyPenalty?: number;
  /** Divides the logits; 0 takes the likeliest token. */
  temperature?: number;
  /** The likeliest tokens, this many; 0 for all. */
  topK?: number;
  /** The fewest likeliest tokens whose probabilities sum up to it. */
  topP?: number;
  /** Tokens whose probability is at least this part of the likeliest one's. */
  minP?: number;
}

export interface GenerateOptions extends SamplingOptions {
  /** Default 512. */
  maxNewTokens?: number;
  /** The same seed gives the same text on the same device; without one each text is another. */
  seed?: number;
  /** The text ends before the first occurrence of one of these. */
  stop?: string | readonly string[];
  /** Tokens that end the text; default: those of the folder. */
  endTokens?: readonly number[];
  /** Ends it at the next token; the iterator rejects with the signal's reason, and nothing of the text stays on the GPU. */
  signal?: AbortSignal;
  /** Whether pieces have `logProbability`; default true. The GPU sums over the whole vocabulary for it. */
  logProbabilities?: boolean;
  /** How many of the likeliest tokens each piece names; default 0. */
  topLogProbabilities?: number;
  /**
   * Changes the logits before a token is drawn from them. `ids` are those of prompt and text so far. With it each token's
   * logits come to JavaScript before the next one is computed, which costs that way's time for every token.
   */
  processLogits?: (logits: Float32Array, ids: readonly number[]) => void;
  /**
   * Whether what was computed of this text stays on the GPU, so that a next one that begins like it (the next turn of a
   * conversation) computes only what is new; default true. `forget` gives it back.
   */
  keepPrompt?: boolean;
  /**
   * Write beyond the model's context: it looks back at this many tokens, or at `contextLength` if that is less (Infinity is
   * that). When there are as many, the text starts over with the first `sinks` and the last half of the rest, as if they had
   * been the prompt; a longer prompt is cut as if it had been written. Default: the text ends where the context does, a longer
   * prompt is refused. Where every attention is local nothing ends, and `Infinity` is the whole text: rows that no
   * later token attends to are released.
   */
  window?: number;
  /**
   * The first tokens of a text, which stay in its window; default: what genai_config.json says (`search.sinks`), else 1 where the
   * text begins with the token that begins the model's texts (BOS), and 0 where it does not.
   */
  sinks?: number;
  /** Variables of the chat template: { tools, enable_thinking: false, ... }. */
  templateValues?: Readonly<Record<string, unknown>>;
}

export interface TokenProbability {
  readonly id: number;
  readonly text: string;
  /** ln of the probability that the model gives it, before penalties and temperature. */
  readonly logProbability: number;
}

/** A token, and the text that is sure with it: whole characters, nothing that may become a stop string. */
export interface Piece extends Omit<TokenProbability, 'logProbability'> {
  /** ln of the probability that the model gives it, before penalties and temperature; absent with `logProbabilities: false`. */
  readonly logProbability?: number;
  /** The likeliest tokens, if `topLogProbabilities` asks for them. */
  readonly top?: readonly TokenProbability[];
  /**
   * Milliseconds: the model, choosing the token, making text of it. `sampling` is 0 where the GPU chooses, `model` is then this
   * token's part of the time between two arrivals.
   */
  readonly times: { readonly model: number; readonly sampling: number; readonly text: number };
  /** How many tokens the model was given for this one: the new ones of the prompt at first, then 1; more where a window starts over. */
  readonly promptTokens: number;
  /** Of the last piece: an end token, a stop string, or `maxNewTokens` or the model's context are used up. */
  readonly finishReason?: 'end' | 'stop' | 'length';
}

/**
 * A language model out of a folder as transformers.js or onnxruntime-genai have it.
 *
 *   const generator = await TextGenerator.create('models/austen/');
 *   for await (const { text } of generator.generate('It is a truth', { seed: 1 })) console.log(text);
 *
 * The GPU chooses the tokens and computes some ahead of those that have arrived, which come in batches of a few milliseconds;
 * what was computed beyond the end is dropped. Tokens are chosen one by one in JavaScript where the session is not on the GPU,
 * the model's ids, mask or positions are not integers [batch, tokens] or its logits not [batch, tokens, words], it has no
 * caches, `processLogits` is given, more than 256 of the most likely tokens are requested, or there are penalties and the model does not
 * say how many words it knows.
 */
export declare class TextGenerator {
  private constructor();
  static create(folder: FolderSource, options?: GeneratorOptions): Promise<TextGenerator>;
  readonly session: InferenceSession;
  /** Tokens of prompt and text together that the model was made for; Infinity where neither folder nor graph say. */
  readonly contextLength: number;
  encode(text: string): number[];
  decode(ids: readonly number[]): string;
  /** Continue a text or a conversation. Leaving the loop ends it. Several loops may run concurrently. */
  generate(input: string | readonly ChatMessage[], options?: GenerateOptions): AsyncGenerator<Piece, void, void>;
  /** Gives back what is kept on the GPU for a next text that begins like the last one. */
  forget(): void;
  /** Frees the model and everything of its texts. A second call does nothing. */
  release(): Promise<void>;
}
