/**
 * Messages between a page and its worker. Each request has an id and gets one reply, a value or an error; progress events may precede it.
 */
import type { DecoderFacts } from '../text/local.js';
import type { AdapterInfo, ProgressEvent, TensorType, ValueMetadata } from '../pyruntime.js';

/** A tensor in a message: raw little-endian elements, an array of strings for type `string`. */
export interface WireTensor {
  type: TensorType;
  dims: number[];
  data: ArrayBuffer | string[];
}

/** A large tensor, whose bytes follow the request as `Piece`s. */
export interface WireStreamed {
  type: TensorType;
  dims: number[];
  data: { stream: number; nbytes: number };
}

/** A message to the worker without a reply: the next `pieceSize(nbytes)` bytes of a stream. */
export interface Piece {
  stream: number;
  piece?: ArrayBuffer;
  /** The stream broke off; the error message. */
  failure?: string;
}

/** A tensor on the GPU: one that the host knows by number, or the page's GPUBuffer. */
export interface WireRemote {
  kind: 'gpu' | 'buffer';
  type: TensorType;
  dims: number[];
  gpu?: number;
  buffer?: GPUBuffer;
  /** Only within this thread: location of a tensor that can be moved to Python. */
  place?: import('../plans/locations.js').Place;
  /** Only within this thread: the tensor's host, if it is not the session's. */
  home?: import('./marshalling.js').Memory;
}

/** An input: a tensor, a sequence, a map, or an empty optional. */
export type WireValue =
  | WireTensor
  | WireStreamed
  | WireRemote
  | { kind: 'sequence'; values: WireValue[] }
  | { kind: 'map'; pairs: [unknown, unknown][] }
  | null;

export interface StartArguments {
  /** The site's folder, the default location of the following. */
  siteUrl: string;
  pyodideUrl: string;
  wheelUrl: string;
  /** Folder of a memory snapshot of that Pyodide with that wheel; without it Python starts without a snapshot. */
  snapshotUrl?: string;
  /** Addresses of files that another bundler has moved, by their addresses in the site. */
  moved: Record<string, string>;
}

export type WireSource = string | Blob | ArrayBuffer;

export interface CreateArguments {
  model: WireSource;
  externalData: { path: string; data: WireSource }[];
  options: object;
  /** Whether runs may start speculatively. */
  speculate?: boolean;
}

/** A session. `decoder`: present if requested by the session config entry `pyruntime.expects`. */
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
  /** Outputs that stay on the GPU: null, or the tensor to write to. */
  kept: Record<string, WireRemote | null>;
  options: object;
}

/** An integer input that is computed for each token. */
export interface DecodeInput {
  name: string;
  type: 'int64' | 'int32';
}

/** A generation whose tokens are selected on the GPU: see `web/worker/decoding.js`. */
export interface DecodeArguments {
  /** Handles of the sessions. */
  decoder: number;
  sampler: number;
  ids: DecodeInput & {
    /** The token before the first selected one; it is not in the caches. */
    first: number;
  };
  mask: DecodeInput | null;
  positions: DecodeInput | null;
  /** Name of the input that says whether the caches have tokens. */
  branch: string | null;
  /** Other inputs of the decoder, equal for every token. */
  fixed: Record<string, WireTensor>;
  /** Name of the output with logits. */
  logits: string;
  /** Each cache: the initial tensor of `input`, and the output that becomes its next value. The caller still owns tensors on the GPU. */
  caches: { input: string; output: string; given: WireTensor | WireRemote }[];
  /** Tokens in the caches. */
  length: number;
  /** Output names of the sampler, as in `sampler_model`. */
  chosen: string[];
  /** Inputs of the sampler, equal for every token. */
  settings: Record<string, WireTensor>;
  /** Initial value of the sampler's input `counts` (how often each token has occurred); null if it has none. */
  counts: WireTensor | null;
}

export interface DecodeStepsArguments {
  /** The result of `decode`. */
  decoding: number;
  /** Number of tokens, at most 16. */
  count: number;
  /** The sampler's input `uniform` for each token; empty if it has no such input. */
  draws: number[];
  /** Number of tokens in the caches that will not be rolled back. */
  confirmed: number;
}

export interface DecodedTokens {
  ids: number[];
  logProbabilities: number[];
  /** For each token, if the sampler returns them. */
  top: { ids: number[]; logProbabilities: number[] }[];
  /** Whether rolling back tokens needs no memory: all caches grow in place. */
  grows: boolean;
}

export interface DecodeEndArguments {
  decoding: number;
  /** Number of tokens to truncate the caches to; null: the caches are freed. */
  kept: number | null;
}

export interface CachePlanArguments {
  session: number;
  /** Plans that earlier sessions of the model cached. */
  before: CachedPlan[];
}

/** A plan file (`pyruntime/compiler/saved.py`), and the adapter that its plans are for. */
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
  /** Id of a 'create' or 'run'; ignored if that was answered already. */
  request: number;
}

/** A tensor on the GPU, by its number. */
export interface TensorArguments {
  tensor: number;
}

/** A tensor to upload to the GPU. */
export interface UploadArguments {
  tensor: WireTensor;
}

/** A function of `pyruntime.bridge.requests`, by name. */
export interface CallArguments {
  function: string;
  arguments: unknown[];
}

export interface WireError {
  /** Class of the Python exception. */
  name: string;
  message: string;
  traceback?: string;
}

export interface Request {
  id: number;
  method: string;
  arguments: unknown;
}

/** `spare`: the buffers of the request's streams, for reuse. */
export type Answer =
  | { id: number; value: unknown; spare?: ArrayBuffer[]; error?: undefined; progress?: undefined }
  | { id: number; error: WireError; spare?: ArrayBuffer[]; progress?: undefined }
  | { id: number; progress: ProgressEvent };
