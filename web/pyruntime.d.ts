/** ONNX models on the browser's GPU: the JavaScript API, shaped like onnxruntime-web. */

export type TensorType =
  | 'float32' | 'float16' | 'float64' | 'bfloat16'
  | 'bool' | 'string'
  | 'int2' | 'int4' | 'int8' | 'int16' | 'int32' | 'int64'
  | 'uint2' | 'uint4' | 'uint8' | 'uint16' | 'uint32' | 'uint64'
  | 'float4e2m1' | 'float8e4m3fn' | 'float8e4m3fnuz' | 'float8e5m2' | 'float8e5m2fnuz' | 'float8e8m0';

export type TypedArray =
  | Float32Array | Float64Array
  | Int8Array | Int16Array | Int32Array | BigInt64Array
  | Uint8Array | Uint16Array | Uint32Array | BigUint64Array;

/**
 * float16 is a Float16Array where the browser has it, else the bits in a Uint16Array; bool is a Uint8Array; types that
 * JavaScript has no array for are raw bits (Uint16Array for bfloat16, else Uint8Array, packed below 8 bits).
 */
export type TensorData = TypedArray | string[];

export declare class Tensor {
  /** Typed arrays are taken as they are, not copied. Without `dims` the tensor has one dimension. */
  constructor(type: TensorType, data: TensorData | readonly (number | bigint | boolean | string)[], dims?: readonly number[]);
  /** The type follows from the array: Float32Array is float32, an array of strings string, of booleans bool. */
  constructor(data: TensorData | readonly boolean[], dims?: readonly number[]);

  readonly type: TensorType;
  readonly dims: readonly number[];
  /** Number of elements. */
  readonly size: number;
  readonly location: 'cpu' | 'none';
  /** Throws when the tensor is disposed. */
  readonly data: TensorData;
  getData(releaseData?: boolean): Promise<TensorData>;
  dispose(): void;
  /** The same data with other dimensions. */
  reshape(dims: readonly number[]): Tensor;
}

/** A URL (relative to the page), a file, or bytes. Bytes are copied: the caller's buffer stays usable. */
export type ModelSource = string | URL | Blob | ArrayBufferLike | ArrayBufferView;

/** Steps towards a session: loading Python ('pyodide', 'wheel', 'adapter', 'import'), then the model. */
export interface ProgressEvent {
  phase: string;
  status: 'begin' | 'progress' | 'end';
  /** At the end: how long the phase took. */
  ms?: number;
  /** While data arrive: bytes so far, and of how many when that is known. */
  loaded?: number;
  total?: number;
}

export type ExecutionProvider = 'webgpu' | 'wasm' | 'cpu' | { name: 'webgpu' | 'wasm' | 'cpu' };

export interface SessionOptions {
  /** In order of preference; default ['webgpu', 'cpu']. 'wasm' and 'cpu' both are NumPy. */
  executionProviders?: readonly ExecutionProvider[];
  graphOptimizationLevel?: 'disabled' | 'basic' | 'extended' | 'layout' | 'all';
  /** Sizes for symbolic dimensions. */
  freeDimensionOverrides?: Readonly<Record<string, number>>;
  /** Files that the model names as external data. */
  externalData?: readonly { path: string; data: ModelSource }[];
  enableProfiling?: boolean;
  logId?: string;
  logSeverityLevel?: 0 | 1 | 2 | 3 | 4;
  /** Configuration entries, nested or dotted: { session: { disable_cpu_ep_fallback: '1' } }. */
  extra?: Readonly<Record<string, unknown>>;
  onProgress?: (event: ProgressEvent) => void;
  /** Ends the loading, downloads included; nothing of it stays, and `create` rejects with the signal's reason. */
  signal?: AbortSignal;
}

export interface RunOptions {
  tag?: string;
  logSeverityLevel?: 0 | 1 | 2 | 3 | 4;
  extra?: Readonly<Record<string, unknown>>;
  /** Ends the run, which then rejects with the signal's reason; the session goes on. */
  signal?: AbortSignal;
}

export interface ValueMetadata {
  readonly name: string;
  readonly isTensor: boolean;
  readonly type: TensorType;
  /** A number, or the name of a symbolic dimension ('' when it has none). */
  readonly shape: readonly (number | string)[];
}

export interface Summary {
  /** In the order of the model. */
  readonly nodes: readonly {
    readonly name: string;
    readonly op_type: string;
    readonly domain: string;
    /** 'none': it costs nothing (a view, a value known beforehand). */
    readonly placement: 'gpu' | 'host' | 'none';
    /** Why it runs there; empty on the GPU. */
    readonly reason: string;
    readonly kernels: readonly string[];
  }[];
  /** Bytes on the GPU; null until the sizes of all inputs are known, and where nothing runs on the GPU. */
  readonly memory: {
    /** What the activations take. */
    readonly peak: number;
    /** The largest sum of live tensors at any step: no plan takes less. */
    readonly lower_bound: number;
    readonly total_without_reuse: number;
    readonly weights: number;
  } | null;
  readonly dispatches: number;
  readonly pipelines: number;
  /** The GPU; null on the CPU. */
  readonly adapter: AdapterInfo | null;
  /** Python's names of the execution providers in use. */
  readonly providers: readonly string[];
  /** Milliseconds, by what took them. */
  readonly timings: Readonly<Record<string, number>>;
  readonly warnings: readonly string[];
}

export type Feeds = Readonly<Record<string, Tensor>>;
export type Fetches = readonly string[] | Readonly<Record<string, Tensor | null>>;

export declare class InferenceSession {
  private constructor();
  /** Rejects with an error whose `name` says what is wrong: InvalidProtobuf, NotImplemented, InvalidGraph, ... */
  static create(source: ModelSource, options?: SessionOptions): Promise<InferenceSession>;
  static create(buffer: ArrayBufferLike, byteOffset: number, byteLength?: number, options?: SessionOptions): Promise<InferenceSession>;

  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: readonly ValueMetadata[];
  readonly outputMetadata: readonly ValueMetadata[];

  run(feeds: Feeds, options?: RunOptions): Promise<Record<string, Tensor>>;
  run(feeds: Feeds, fetches: Fetches, options?: RunOptions): Promise<Record<string, Tensor>>;
  /** Frees the model's memory, on the GPU too. A second call does nothing. */
  release(): Promise<void>;
  /** What the model is, where each operator runs and why, what memory it takes. */
  summary(): Promise<Summary>;
}

export interface Env {
  /** Folder of Pyodide. Default: the copy beside web/ where there is one, else Pyodide's CDN, exact version. */
  pyodideUrl: string | undefined;
  /** pyruntime's own wheel. Default: beside web/. */
  wheelUrl: string;
  /**
   * Folder of the memory snapshot that Python starts from. Default: beside web/, where Pyodide and the wheel are the ones
   * there too; null: start Python from nothing, as happens anyway where the snapshot does not fit the browser.
   */
  snapshotUrl: string | null | undefined;
  readonly versions: { readonly pyruntime: string; readonly pyodide: string };
  /** Taken from onnxruntime-web; nothing here depends on them. */
  wasm: Record<string, unknown>;
  webgpu: Record<string, unknown>;
}

/** Read when the first session is created. */
export declare const env: Env;

/** An error that happened in Python. */
export interface WorkerError extends Error {
  /** Python's traceback. */
  traceback?: string;
}

/** Start Python before the first session asks for it. */
export declare function preload(options?: { onProgress?: (event: ProgressEvent) => void }): Promise<void>;

export interface AdapterInfo {
  vendor: string;
  architecture: string;
  device: string;
  description: string;
}

/** The GPU adapter that sessions use, null where there is none. */
export declare function adapterInfo(): Promise<AdapterInfo | null>;
