/**
 * Messages between a page and its worker. Each request has an id and gets one reply, a value or an error; progress may
 * come before it.
 */
import type { DecoderFacts } from '../text/local.js';
import type { AdapterInfo, ProgressEvent, TensorType, ValueMetadata } from '../pyruntime.js';

/** A tensor in a message: raw little-endian elements, an array of strings for type `string`. */
export interface WireTensor {
  type: TensorType;
  dims: number[];
  data: ArrayBuffer | string[];
}

/** A large tensor, whose bytes follow the request in `Piece`s. */
export interface WireStreamed {
  type: TensorType;
  dims: number[];
  data: { stream: number; nbytes: number };
}

/** A message to the worker that gets no reply: the next bytes of a stream, `pieceSize(nbytes)` of them. */
export interface Piece {
  stream: number;
  piece?: ArrayBuffer;
  /** Nothing more will come. */
  failure?: string;
}

/** A tensor on the GPU: one the host knows by its number, or a GPUBuffer of the page's. */
export interface WireRemote {
  kind: 'gpu' | 'buffer';
  type: TensorType;
  dims: number[];
  gpu?: number;
  buffer?: GPUBuffer;
  /** In this thread alone: where a tensor is that can go to Python. */
  place?: import('../plans/locations.js').Place;
  /** In this thread alone: its location, where its host is not the session's. */
  home?: import('./marshalling.js').Memory;
}

/** What is fed: a tensor, a sequence, a map, an empty optional. */
export type WireValue =
  | WireTensor
  | WireStreamed
  | WireRemote
  | { kind: 'sequence'; values: WireValue[] }
  | { kind: 'map'; pairs: [unknown, unknown][] }
  | null;

export interface StartArguments {
  /** The site's folder, which the following are in by default. */
  siteUrl: string;
  pyodideUrl: string;
  wheelUrl: string;
  /** Folder of a memory snapshot taken from that Pyodide with that wheel; without it Python starts from nothing. */
  snapshotUrl?: string;
  /** Where another bundler has put files of the site, by their addresses in it. */
  moved: Record<string, string>;
}

export type WireSource = string | Blob | ArrayBuffer;

export interface CreateArguments {
  model: WireSource;
  externalData: { path: string; data: WireSource }[];
  options: object;
  /** Whether runs may begin before they are requested. */
  speculate?: boolean;
}

/** A session. `decoder`: where the session config entry `pyruntime.expects` asks for it. */
export interface Created {
  handle: number;
  inputs: ValueMetadata[];
  outputs: ValueMetadata[];
  decoder?: DecoderFacts | null;
}

export interface RunArguments {
  session: number;
  feeds: Record<string, WireValue>;
  /** null: all outputs. */
  fetches: string[] | null;
  /** Outputs that stay on the GPU: null, or what they are written to. */
  kept: Record<string, WireRemote | null>;
  options: object;
}

/** An input that is made for each token: integers. */
export interface DecodeInput {
  name: string;
  type: 'int64' | 'int32';
}

/** A text whose tokens are chosen on the GPU: see `web/worker/decoding.js`. */
export interface DecodeArguments {
  /** Sessions. */
  decoder: number;
  sampler: number;
  ids: DecodeInput & {
    /** The token before the first one that is chosen; it is not in the caches. */
    first: number;
  };
  mask: DecodeInput | null;
  positions: DecodeInput | null;
  /** Name of the input that says whether there are caches. */
  branch: string | null;
  /** Other inputs of the decoder, the same for every token. */
  fixed: Record<string, WireTensor>;
  /** Name of the output. */
  logits: string;
  /** Each cache: the initial tensor of `input`, and the output that the next step feeds to it. Tensors on the GPU stay the caller's. */
  caches: { input: string; output: string; given: WireTensor | WireRemote }[];
  /** Tokens in the caches. */
  length: number;
  /** Outputs of the sampler, of those that `sampler_model` names. */
  chosen: string[];
  /** Inputs of the sampler, the same for every token. */
  settings: Record<string, WireTensor>;
  /** Initial value of the sampler's input `counts` (how often each token has occurred); null if it has none. */
  counts: WireTensor | null;
}

export interface DecodeStepsArguments {
  /** The number that `decode` has answered. */
  decoding: number;
  /** How many tokens, at most 16. */
  count: number;
  /** The sampler's input `uniform` for each of them; none: it has no such input. */
  draws: number[];
  /** Tokens in the caches that will not be taken back. */
  confirmed: number;
}

export interface DecodedTokens {
  ids: number[];
  logProbabilities: number[];
  /** Of each token, where the sampler says them. */
  top: { ids: number[]; logProbabilities: number[] }[];
  /** Whether taking tokens back needs no memory: all caches grow where they are. */
  grows: boolean;
}

export interface DecodeEndArguments {
  decoding: number;
  /** Tokens to which the caches are cut; null: they are given up. */
  kept: number | null;
}

export interface CachePlanArguments {
  session: number;
  /** What earlier sessions over the model have left. */
  before: CachedPlan[];
}

/** A file of plans (`pyruntime/compiler/saved.py`), and the adapter that they are for. */
export interface CachedPlan {
  plan: ArrayBuffer;
  adapter: AdapterInfo;
  /** Strong ETags of the model's files, by address. */
  tags?: Record<string, string>;
}

export interface ReleaseArguments {
  session: number;
}

export interface CancelArguments {
  /** Id of a 'create' or 'run'; one that has been answered is not touched. */
  request: number;
}

/** A tensor that stays on the GPU, by its number. */
export interface TensorArguments {
  tensor: number;
}

/** A tensor that is to stay on the GPU. */
export interface UploadArguments {
  tensor: WireTensor;
}

/** A function of `pyruntime.bridge.requests`, by name. */
export interface CallArguments {
  function: string;
  arguments: unknown[];
}

export interface WireError {
  /** The Python exception's class. */
  name: string;
  message: string;
  traceback?: string;
}

export interface Request {
  id: number;
  method: string;
  arguments: unknown;
}

/** `spare`: the pieces of the request's streams, to be used again. */
export type Answer =
  | { id: number; value: unknown; spare?: ArrayBuffer[]; error?: undefined; progress?: undefined }
  | { id: number; error: WireError; spare?: ArrayBuffer[]; progress?: undefined }
  | { id: number; progress: ProgressEvent };
