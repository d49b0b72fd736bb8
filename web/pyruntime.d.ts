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
 * Typed array of each tensor type: float16 is a Float16Array if the browser supports it, else a Uint16Array of bits; bool is a Uint8Array;
 * types without a JavaScript array are raw bits (Uint16Array for bfloat16, else Uint8Array, packed below 8 bits).
 */
export type TensorData = TypedArray | string[];

/** The type of a global, if the project declares it. */
type GlobalType<Name extends string, Fallback> = typeof globalThis extends { [key in Name]: { prototype: infer T } } ? T : Fallback;
type GpuBuffer = GlobalType<'GPUBuffer', { readonly size: number; destroy(): void }>;
type GpuDevice = GlobalType<'GPUDevice', { readonly queue: unknown }>;

/** 'gpu-buffer': on the GPU, even if Python runs in a worker and the GPUBuffer is not accessible. 'none': disposed. */
export type DataLocation = 'cpu' | 'cpu-pinned' | 'gpu-buffer' | 'none';

interface ArrayOf {
  float32: Float32Array;
  float64: Float64Array;
  int8: Int8Array;
  int16: Int16Array;
  int32: Int32Array;
  int64: BigInt64Array;
  uint16: Uint16Array;
  uint32: Uint32Array;
  uint64: BigUint64Array;
  string: string[];
}
/** The array of a tensor type. That of float16 depends on the browser; others are Uint8Array, that of bfloat16 Uint16Array. */
export type DataOf<T extends TensorType> = T extends keyof ArrayOf ? ArrayOf[T]
  : T extends 'bfloat16' | 'float16' ? Uint16Array : Uint8Array;

/** A Tensor of a known type. */
export interface TypedTensor<T extends TensorType> extends Tensor {
  readonly type: T;
  readonly data: DataOf<T>;
  getData(releaseData?: boolean): Promise<DataOf<T>>;
}

export type ImageFormat = 'RGB' | 'RGBA' | 'BGR' | 'RBG';
export type ImageSource =
  | ImageData | ImageBitmap | HTMLImageElement | HTMLCanvasElement | HTMLVideoElement | OffscreenCanvas | Blob | string;
/** One number for all channels, or one for each of red, green, blue and alpha. */
export type PerChannel = number | readonly number[];

export interface FromImageOptions {
  resizedWidth?: number;
  resizedHeight?: number;
  /** Order of the channels; default 'RGB'. */
  tensorFormat?: ImageFormat;
  tensorLayout?: 'NCHW' | 'NHWC';
  dataType?: 'float32' | 'uint8';
  /** Elements are (pixel + bias) / mean, pixels from 0 to 255; default mean 255 (1 for uint8), bias 0. */
  norm?: { mean?: PerChannel; bias?: PerChannel };
}

export interface ToImageOptions {
  /** Order of the channels; default 'RGB', or 'RGBA' for four channels. One channel is grey. */
  format?: ImageFormat;
  tensorLayout?: 'NCHW' | 'NHWC';
  /** Pixels are (element - bias) * mean; default mean 255, bias 0. */
  norm?: { mean?: PerChannel; bias?: PerChannel };
}

export interface FromGpuBufferOptions {
  /** Default 'float32'. */
  dataType?: TensorType;
  dims: readonly number[];
  /** Called by `getData`. Without it the data stays on the GPU. */
  download?: () => Promise<TensorData>;
  /** Called by `dispose`. Without it the creator of the buffer frees it. */
  dispose?: () => void;
}

export declare class Tensor {
  /** Typed arrays are used without a copy. Without `dims` the tensor has one dimension. */
  constructor(type: TensorType, data: TensorData | readonly (number | bigint | boolean | string)[], dims?: readonly number[]);
  /** The type follows from the array: Float32Array gives float32, an array of strings string, an array of booleans bool. */
  constructor(data: TensorData | Uint8ClampedArray | readonly boolean[], dims?: readonly number[]);

  readonly type: TensorType;
  readonly dims: readonly number[];
  /** Number of elements. */
  readonly size: number;
  readonly location: DataLocation;
  /** The data; throws if it is on the GPU, or disposed. */
  readonly data: TensorData;
  /** The tensor's buffer on `env.webgpu.device`, if Python runs in this thread (web/page.js); otherwise throws. */
  readonly gpuBuffer: GpuBuffer;
  /** Return the data, read back from the GPU if necessary; `releaseData` releases the GPU memory. */
  getData(releaseData?: boolean): Promise<TensorData>;
  /** Release the memory, on the GPU too. */
  dispose(): void;
  /** Return a tensor of the same data with other dimensions. */
  reshape(dims: readonly number[]): Tensor;
  toImageData(options?: ToImageOptions): ImageData;
  toDataURL(options?: ToImageOptions): string;

  /** Convert a picture to [1, channels, height, width], or to [1, height, width, channels] with layout 'NHWC'. */
  static fromImage(image: ImageSource, options?: FromImageOptions): Promise<Tensor>;
  /**
   * Create a tensor in a GPUBuffer of `env.webgpu.device`, with usage COPY_SRC (as an input) or COPY_DST (as an output). Runs copy it on
   * the GPU, and the creator still owns the buffer. Needs Python in this thread (web/page.js).
   */
  static fromGpuBuffer(buffer: GpuBuffer, options: FromGpuBufferOptions): Tensor;
  static fromPinnedBuffer(type: TensorType, data: TypedArray, dims?: readonly number[]): Tensor;
}
export declare namespace Tensor {
  type Type = TensorType;
  type DataType = TensorData;
}

/**
 * A URL (relative to the page), a file, an unread Response or stream, or bytes; or a promise of one of these. Bytes are copied, so the
 * caller's buffer stays usable.
 */
export type ModelSource = GivenSource | PromiseLike<GivenSource>;
type GivenSource =
  | string | URL | Blob | FileSystemFileHandle | Response | ReadableStream<Uint8Array> | ArrayBufferLike | ArrayBufferView;

/** Progress of creating a session: loading Python ('pyodide', 'wheel', 'adapter', 'import'), then the model. */
export interface ProgressEvent {
  phase: string;
  status: 'begin' | 'progress' | 'end';
  /** Phase 'file': path of the file in the folder. */
  file?: string;
  /** At the end: duration of the phase. */
  ms?: number;
  /** During a download: bytes so far, and the total if known. */
  loaded?: number;
  total?: number;
  /** Phase 'model': the file, if the model has several. */
  part?: { url: string; loaded: number; total: number | undefined };
}

export type ExecutionProvider =
  | 'webgpu' | 'wasm' | 'cpu'
  | { readonly name: 'webgpu' | 'wasm' | 'cpu'; readonly device?: GpuDevice; readonly [option: string]: unknown };

export interface SessionOptions {
  /** In order of preference; default ['webgpu', 'cpu']. 'wasm' and 'cpu' both run on NumPy. */
  executionProviders?: readonly ExecutionProvider[];
  graphOptimizationLevel?: 'disabled' | 'basic' | 'extended' | 'layout' | 'all';
  /** Sizes of symbolic dimensions. */
  freeDimensionOverrides?: Readonly<Record<string, number>>;
  /**
   * The model compiled ahead of time (`python -m pyruntime compile`): the session runs without Python, which starts only for what the plan
   * does not cover. A plan of another model, version or device is ignored, with a message on the console.
   */
  plan?: ModelSource;
  /**
   * Whether to cache plans on the visitor's computer (Cache Storage of the page's origin, at most 64 plans of 64 MB in total), so that
   * later sessions of the model, in later visits too, start without Python. Not for outputs that stay on the GPU if Python runs in the
   * page's thread, and not for profiles.
   */
  cachePlan?: boolean;
  /**
   * Files that the model names as external data; for a URL, its file name is the name in the model. Missing files of a model at a URL are
   * fetched from its folder, never from outside it.
   */
  externalData?: readonly (string | { path: string; data: ModelSource })[];
  /**
   * Location of the outputs, of all or by name. 'gpu-buffer': on the GPU, as inputs of sessions or for `getData()`. Unknown names are
   * ignored. Types that the GPU cannot hold and tensors without elements are on the 'cpu'.
   */
  preferredOutputLocation?: DataLocation | Readonly<Record<string, DataLocation>>;
  /** Whether to record the times of every run; see `endProfiling`. Runs are slower. */
  enableProfiling?: boolean;
  logId?: string;
  logSeverityLevel?: 0 | 1 | 2 | 3 | 4;
  /**
   * 'float16': a float32 model computes in float16, and its weights take half the GPU memory; inputs and outputs keep their types. Default:
   * the model's types. `float32Nodes`: names of nodes that compute in float32 nevertheless.
   */
  precision?: 'float16' | 'float32';
  float32Nodes?: readonly string[];
  /** Session config entries, nested or dotted: { session: { disable_cpu_ep_fallback: '1' } }. */
  extra?: Readonly<Record<string, unknown>>;
  /** Options of onnxruntime-web without effect here. */
  intraOpNumThreads?: number;
  interOpNumThreads?: number;
  enableCpuMemArena?: boolean;
  enableMemPattern?: boolean;
  enableGraphCapture?: boolean;
  executionMode?: 'sequential' | 'parallel';
  logVerbosityLevel?: number;
  onProgress?: (event: ProgressEvent) => void;
  /** Aborts loading and downloads; `create` rejects with the signal's reason. */
  signal?: AbortSignal;
}

export interface RunOptions {
  /** true: the run rejects with Fail before it starts. `signal` aborts a run in progress. */
  terminate?: boolean;
  tag?: string;
  logSeverityLevel?: 0 | 1 | 2 | 3 | 4;
  extra?: Readonly<Record<string, unknown>>;
  /** Aborts the run, which rejects with the signal's reason; the session stays usable. */
  signal?: AbortSignal;
  /**
   * Called with `{ phase: 'run', status: 'progress', loaded, total }` during a long run: operations of the part of the model that is being
   * computed; most models have one part. Runs of less than half a second report nothing.
   */
  onProgress?: (event: ProgressEvent) => void;
}

export interface ValueMetadata {
  readonly name: string;
  readonly isTensor: boolean;
  /** Element type of a tensor; for other values ONNX's name of the type: 'seq(tensor(float))'. */
  readonly type: TensorType;
  /** A number, or the name of a symbolic dimension ('' without a name). */
  readonly shape: readonly (number | string)[];
}

export interface Summary {
  /** In the model's order. */
  readonly nodes: readonly {
    readonly name: string;
    readonly op_type: string;
    readonly domain: string;
    /** 'none': takes no time (a view, a constant). */
    readonly placement: 'gpu' | 'host' | 'none';
    /** Reason for the placement; empty on the GPU. */
    readonly reason: string;
    readonly kernels: readonly string[];
  }[];
  /** Bytes on the GPU; null until the sizes of all inputs are known, and if nothing runs on the GPU. */
  readonly memory: {
    /** Bytes of the activations of all plans of the session. */
    readonly peak: number;
    /** Of the plan used last, the largest sum of live tensors at any step: a lower bound for every plan. */
    readonly lower_bound: number;
    /** Of the plan used last. */
    readonly total_without_reuse: number;
    /** Weights and computed constants of all plans of the session. */
    readonly weights: number;
    /** Bytes allocated on the device now, by all sessions on it. */
    readonly allocated: {
      readonly weights?: number;
      /** Constants that were computed once. */
      readonly computed?: number;
      readonly activations?: number;
      /** Parameters of kernels. */
      readonly parameters?: number;
      /** Inputs, outputs and caches that stay on the device, and memory kept for later ones. */
      readonly tensors?: number;
      /** What uploads, results and selected tokens pass through. */
      readonly staging?: number;
    };
  } | null;
  readonly dispatches: number;
  readonly pipelines: number;
  /** The GPU; null on the CPU. */
  readonly adapter: AdapterInfo | null;
  /** Names of the execution providers in use, as in Python. */
  readonly providers: readonly string[];
  /**
   * Milliseconds: reading the graph (`parse_ms`, without what is read during the download), the adapter, planning and what waits for it
   * (`shaders_ms`), all of `create_ms`, the last run. Parts of `shaders_ms`: all planning so far (`plan_ms`), and for the last plan the
   * concurrent times until memory, pipelines, weights and computed constants were ready (`allocate_ms`, `pipelines_ms`, `weights_ms`,
   * `computed_ms`). For a cached or ahead-of-time compiled plan, the last three and `create_ms`.
   */
  readonly timings: Readonly<Record<string, number>>;
  readonly warnings: readonly string[];
}

/** Measurements of `InferenceSession.tune()`. */
export interface Tuning {
  /** Measured rates of the device; null on a software adapter. */
  readonly rates: Readonly<Record<string, number>> | null;
  readonly measured: readonly {
    readonly family: string;
    /** The problem: '128x3072x768' is rows, columns and depth of a product. */
    readonly problem: string;
    /** The kernel used before, and the one used from now on. */
    readonly chosen: string;
    readonly winner: string;
    /** Time of the kernel used before, relative to the fastest. */
    readonly loss: number;
    /** In order of time; microseconds, measured and predicted by the cost model. */
    readonly candidates: readonly { readonly name: string; readonly took: number; readonly cost: number }[];
  }[];
}

/** Details of a session: nodes, kernels, memory over time, for the shapes planned last. */
export interface Explanation {
  readonly title: string;
  /** Number of nodes before fusion. */
  readonly model_nodes: number;
  readonly dispatches: number;
  /** Nodes that replace several nodes of the model. */
  readonly fusions: readonly string[];
  readonly nodes: readonly (Summary['nodes'][number] & {
    /** Types of the outputs: 'float[1, 16]'. */
    readonly outputs: readonly string[];
  })[];
  readonly kernels: readonly {
    readonly name: string;
    /** Number of dispatches. */
    readonly count: number;
    readonly nodes: readonly string[];
    readonly wgsl: string;
  }[];
  /** Kernels that were selected among several, with costs in microseconds by the device's cost model. */
  readonly choices: readonly {
    readonly node: string;
    readonly problem: string;
    readonly chosen: string;
    /** 'cost', or 'measured' by `tune`. */
    readonly reason: string;
    /** In order of cost; kernels that do not apply are last, with the reason. */
    readonly considered: readonly { readonly name: string; readonly cost: number | null; readonly reason: string }[];
  }[];
  /** With the session option `precision: 'float16'`, by node: why it computes in float32, '' if it does not; otherwise null. */
  readonly precision: Readonly<Record<string, string>> | null;
  readonly sizes: {
    /** Dimensions of inputs, such as 'batch' or 'x[0]', that may change between runs without another plan. */
    readonly open: readonly { readonly name: string; readonly low: number; readonly high: number }[];
    /** Dimensions for which each size needs a separate plan, and why. */
    readonly fixed: readonly { readonly name: string; readonly reason: string }[];
  };
  /** Bytes of the activations on the GPU. */
  readonly memory: NonNullable<Summary['memory']> & {
    readonly tensors: readonly {
      /** Values that share these bytes. */
      readonly names: readonly string[];
      readonly bytes: number;
      /** First and last step during which it is live. */
      readonly first: number;
      readonly last: number;
      readonly arena: number;
      readonly offset: number;
    }[];
  };
}

/** A tensor of another implementation of onnxruntime's API, whose `type`, `dims` and `data` are read. */
export interface TensorLike {
  readonly type: string;
  readonly dims: readonly number[];
  readonly data?: unknown;
  readonly gpuBuffer?: unknown;
}

export interface MapOptions extends Omit<RunOptions, 'onProgress'> {
  /** Names of the outputs; default: all. */
  fetches?: readonly string[];
  /** Called after each batch; `total` is known for arrays. */
  onProgress?: (event: { readonly done: number; readonly total: number | undefined }) => void;
}

/** A tensor, a sequence of tensors, a map (with keys that are numbers, BigInts or strings), or null for an empty optional. */
export type FeedValue = TensorLike | readonly TensorLike[] | ReadonlyMap<string | number | bigint, number | bigint | string> | null;
export type Feeds = Readonly<Record<string, FeedValue>>;
export type Fetches = readonly string[] | Readonly<Record<string, TensorLike | null>>;

/** Outputs by name: a Tensor, an array of tensors for a sequence, a Map for a map, or null for an empty optional. */
export type RunResult = Record<string, Tensor>;

/** An event in Chrome's trace format, in microseconds since the session's creation. */
export interface TraceEvent {
  readonly cat: 'Session' | 'Node' | 'Kernel';
  readonly name: string;
  readonly ts: number;
  readonly dur: number;
  readonly ph: 'X';
  readonly pid: number;
  readonly tid: number;
  readonly args: Readonly<Record<string, unknown>>;
}

export declare class InferenceSession {
  private constructor();
  /** Load a model. Rejects with an error whose `name` is its kind: InvalidProtobuf, NotImplemented, InvalidGraph, ... */
  static create(source: ModelSource, options?: SessionOptions): Promise<InferenceSession>;
  static create(buffer: ArrayBufferLike, byteOffset: number, byteLength?: number, options?: SessionOptions): Promise<InferenceSession>;

  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: readonly ValueMetadata[];
  readonly outputMetadata: readonly ValueMetadata[];

  run(feeds: Feeds, options?: RunOptions): Promise<RunResult>;
  run(feeds: Feeds, fetches: Fetches, options?: RunOptions): Promise<RunResult>;
  /**
   * Run batches in a pipeline, for throughput: while the GPU computes a batch, the next is uploaded. Results come in the order of the
   * batches; leaving the loop ends it. A batch's arrays must not change until its results have arrived.
   */
  map(batches: Iterable<Feeds> | AsyncIterable<Feeds>, options?: MapOptions): AsyncGenerator<RunResult, void, void>;
  /** Start to record the times of runs. */
  startProfiling(): Promise<void>;
  /** Stop recording; return the events in Chrome's trace format. */
  endProfiling(): Promise<TraceEvent[]>;
  /** Release the model's memory, on the GPU too. A second call has no effect. */
  release(): Promise<void>;
  /** Return the model's metadata, placement of operators with reasons, and memory. */
  summary(): Promise<Summary>;
  /** Return the same with shaders and the memory plan. */
  explain(): Promise<Explanation>;
  /**
   * Measure all candidate kernels for the products of this model on this device, which takes seconds. Sessions that are created later, in
   * later visits of this browser too, use the fastest. Measures the shapes that were planned, so first `run` a model with dynamic shapes
   * with relevant inputs.
   */
  tune(): Promise<Tuning>;
}

export declare namespace InferenceSession {
  type FeedsType = Feeds;
  type FetchesType = Fetches;
  type ReturnType = RunResult;
  type OnnxValueMapType = RunResult;
  type ExecutionProviderConfig = ExecutionProvider;
  type SessionOptions = import('./pyruntime.js').SessionOptions;
  type RunOptions = import('./pyruntime.js').RunOptions;
  type ValueMetadata = import('./pyruntime.js').ValueMetadata;
}

export type * from './text/generator.js';
export { TextGenerator } from './text/generator.js';

export interface Env {
  /**
   * URL of a copy of the package: the folder of `web/` and `pyodide/`. Default: the location of this module, or where the bundler has put
   * the package's files. This and the following settings are read when Python starts: for the first session, or by `preload`.
   */
  baseUrl: string | undefined;
  /** Whether Python runs in a worker. Default: if workers can be created; otherwise it runs in the caller's thread. */
  worker: boolean | undefined;
  /**
   * A script of the page's origin that imports web/worker.js, for pages of another origin whose policy forbids workers from blob: URLs.
   */
  workerUrl: string | undefined;
  /** Folder of Pyodide. Default: `pyodide/` of the package. */
  pyodideUrl: string | undefined;
  /** URL of pyruntime's wheel. Default: the package's. */
  wheelUrl: string | undefined;
  /**
   * Folder of the memory snapshot that Python starts from. Default: the package's, if Pyodide and the wheel are the package's too; null:
   * start Python without a snapshot, as also happens if it does not match the browser.
   */
  snapshotUrl: string | null | undefined;
  /**
   * Predicted work of a run, in elementary operations, up to which sessions with the CPU provider run there, since planning and the GPU's
   * latency take longer. Applies to models with few nodes; default 524288; 0: always use the GPU. Read by `create`; the session option
   * `extra: { pyruntime: { host_work } }` sets it for one session.
   */
  hostWork: number;
  /**
   * Whether runs start speculatively in a session whose inputs can be predicted, as in a loop that feeds the most likely token. Their
   * results are used only if the inputs equal the predicted ones. Default true; read by `create`.
   */
  runAhead: boolean;
  readonly versions: { readonly pyruntime: string; readonly pyodide: string };
  /** Settings of onnxruntime-web without effect here. */
  wasm: Record<string, unknown>;
  webgl: Record<string, unknown>;
  webgpu: {
    /**
     * The device of sessions, if Python runs in this thread; may be set before the first session, to use another device.
     */
    get device(): Promise<GpuDevice>;
    set device(device: GpuDevice);
    [name: string]: unknown;
  };
  /** Lowest severity of messages on the console; default 'warning'. */
  logLevel?: 'verbose' | 'info' | 'warning' | 'error' | 'fatal';
  [name: string]: unknown;
}

/** Settings, read when the first session is created. */
export declare const env: Env;

/** An error of Python. */
export interface WorkerError extends Error {
  /** Python's traceback. */
  traceback?: string;
}

/** Start Python before the first session needs it. */
export declare function preload(options?: { onProgress?: (event: ProgressEvent) => void }): Promise<void>;

export interface AdapterInfo {
  vendor: string;
  architecture: string;
  device: string;
  description: string;
}

/** Return the supported operators by domain ('' is ai.onnx). Some are supported only in newer opsets. */
export declare function operators(): Promise<Record<string, string[]>>;

/** Return the GPU adapter of sessions; null if there is none. */
export declare function adapterInfo(): Promise<AdapterInfo | null>;

declare const api: {
  readonly InferenceSession: typeof InferenceSession;
  readonly Tensor: typeof Tensor;
  readonly TextGenerator: typeof import('./text/generator.js').TextGenerator;
  readonly env: typeof env;
  readonly operators: typeof operators;
  readonly preload: typeof preload;
  readonly adapterInfo: typeof adapterInfo;
};
export default api;
