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

/** The type of a global, where the project has its declarations. */
type GlobalType<Name extends string, Fallback> = typeof globalThis extends { [key in Name]: { prototype: infer T } } ? T : Fallback;
type GpuBuffer = GlobalType<'GPUBuffer', { readonly size: number; destroy(): void }>;
type GpuDevice = GlobalType<'GPUDevice', { readonly queue: unknown }>;

/** 'gpu-buffer': on the GPU, also where Python is in a worker and the GPUBuffer cannot be had. 'none': disposed. */
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
/** The array of a tensor type. float16's depends on the browser; the rest are Uint8Array, bfloat16 Uint16Array. */
export type DataOf<T extends TensorType> = T extends keyof ArrayOf ? ArrayOf[T]
  : T extends 'bfloat16' | 'float16' ? Uint16Array : Uint8Array;

/** A Tensor whose type is known. */
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
  /** Order of the channels; default 'RGB', 'RGBA' where there are four. One channel is grey. */
  format?: ImageFormat;
  tensorLayout?: 'NCHW' | 'NHWC';
  /** Pixels are (element - bias) * mean; default mean 255, bias 0. */
  norm?: { mean?: PerChannel; bias?: PerChannel };
}

export interface FromGpuBufferOptions {
  /** Default 'float32'. */
  dataType?: TensorType;
  dims: readonly number[];
  /** What `getData` calls. Without it the data stay on the GPU. */
  download?: () => Promise<TensorData>;
  /** What `dispose` calls. Without it the buffer is its maker's. */
  dispose?: () => void;
}

export declare class Tensor {
  /** Typed arrays are taken as they are, not copied. Without `dims` the tensor has one dimension. */
  constructor(type: TensorType, data: TensorData | readonly (number | bigint | boolean | string)[], dims?: readonly number[]);
  /** The type follows from the array: Float32Array is float32, an array of strings string, of booleans bool. */
  constructor(data: TensorData | Uint8ClampedArray | readonly boolean[], dims?: readonly number[]);

  readonly type: TensorType;
  readonly dims: readonly number[];
  /** Number of elements. */
  readonly size: number;
  readonly location: DataLocation;
  /** Throws when the data are on the GPU, or disposed. */
  readonly data: TensorData;
  /** The tensor's memory on `env.webgpu.device`: where Python is in this thread (web/page.js), otherwise it throws. */
  readonly gpuBuffer: GpuBuffer;
  /** The data, fetched from the GPU where they are there; `releaseData` gives the GPU's memory back. */
  getData(releaseData?: boolean): Promise<TensorData>;
  /** Gives the memory back, on the GPU too. */
  dispose(): void;
  /** The same data with other dimensions. */
  reshape(dims: readonly number[]): Tensor;
  toImageData(options?: ToImageOptions): ImageData;
  toDataURL(options?: ToImageOptions): string;

  /** A picture as [1, channels, height, width], or [1, height, width, channels] with layout 'NHWC'. */
  static fromImage(image: ImageSource, options?: FromImageOptions): Promise<Tensor>;
  /**
   * A tensor whose elements are in a GPUBuffer of `env.webgpu.device`, with usage COPY_SRC (fed) or COPY_DST (fetched).
   * Runs copy it on the GPU, so that the buffer stays its maker's. Needs Python in this thread (web/page.js).
   */
  static fromGpuBuffer(buffer: GpuBuffer, options: FromGpuBufferOptions): Tensor;
  static fromPinnedBuffer(type: TensorType, data: TypedArray, dims?: readonly number[]): Tensor;
}
export declare namespace Tensor {
  type Type = TensorType;
  type DataType = TensorData;
}

/**
 * A URL (relative to the page), a file, an unread Response or stream, or bytes; or a promise of one of these. Bytes are
 * copied: the caller's buffer stays usable.
 */
export type ModelSource = GivenSource | PromiseLike<GivenSource>;
type GivenSource =
  | string | URL | Blob | FileSystemFileHandle | Response | ReadableStream<Uint8Array> | ArrayBufferLike | ArrayBufferView;

/** Steps towards a session: loading Python ('pyodide', 'wheel', 'adapter', 'import'), then the model. */
export interface ProgressEvent {
  phase: string;
  status: 'begin' | 'progress' | 'end';
  /** Of a folder (phase 'file'): its path there. */
  file?: string;
  /** At the end: how long the phase took. */
  ms?: number;
  /** While data arrive: bytes so far, and of how many when that is known. */
  loaded?: number;
  total?: number;
  /** Of a model in files (phase 'model'): the one that this is news of. */
  part?: { url: string; loaded: number; total: number | undefined };
}

export type ExecutionProvider =
  | 'webgpu' | 'wasm' | 'cpu'
  | { readonly name: 'webgpu' | 'wasm' | 'cpu'; readonly device?: GpuDevice; readonly [option: string]: unknown };

export interface SessionOptions {
  /** In order of preference; default ['webgpu', 'cpu']. 'wasm' and 'cpu' both are NumPy. */
  executionProviders?: readonly ExecutionProvider[];
  graphOptimizationLevel?: 'disabled' | 'basic' | 'extended' | 'layout' | 'all';
  /** Sizes for symbolic dimensions. */
  freeDimensionOverrides?: Readonly<Record<string, number>>;
  /**
   * The model compiled ahead of time (`python -m pyruntime compile`): the session runs without Python, which starts only
   * for what the plan does not have. A plan of another model, version or device is not used; the console says why.
   */
  plan?: ModelSource;
  /**
   * Cache plans on the visitor's computer (Cache Storage of the page's origin, at most 64 plans of 64 MB together), so that the
   * next session over the model begins without Python, at the next visit too. Not for outputs that stay on the GPU where Python
   * is in the page's thread, and not for profiles.
   */
  cachePlan?: boolean;
  /**
   * Files that the model names as external data; a URL alone is the name in the model, too. Those of a model at a URL that
   * are not given are fetched from its folder, never from outside it.
   */
  externalData?: readonly (string | { path: string; data: ModelSource })[];
  /**
   * Where outputs are left, all or by name. 'gpu-buffer': on the GPU, to be fed to sessions or got by `getData()`. Names that
   * the model has no output of are passed over. What the GPU cannot hold and tensors without elements are on the 'cpu'.
   */
  preferredOutputLocation?: DataLocation | Readonly<Record<string, DataLocation>>;
  /** Note the times of every run; see `endProfiling`. Runs are slower. */
  enableProfiling?: boolean;
  logId?: string;
  logSeverityLevel?: 0 | 1 | 2 | 3 | 4;
  /**
   * 'float16': a model of float32 computes in float16, and its weights take half of the memory on the GPU; inputs and outputs keep
   * their types. Default: the types of the model. `float32Nodes`: names of nodes that compute in float32 all the same.
   */
  precision?: 'float16' | 'float32';
  float32Nodes?: readonly string[];
  /** Configuration entries, nested or dotted: { session: { disable_cpu_ep_fallback: '1' } }. */
  extra?: Readonly<Record<string, unknown>>;
  /** Of onnxruntime-web; nothing here depends on them. */
  intraOpNumThreads?: number;
  interOpNumThreads?: number;
  enableCpuMemArena?: boolean;
  enableMemPattern?: boolean;
  enableGraphCapture?: boolean;
  executionMode?: 'sequential' | 'parallel';
  logVerbosityLevel?: number;
  onProgress?: (event: ProgressEvent) => void;
  /** Ends the loading, downloads included; nothing of it stays, and `create` rejects with the signal's reason. */
  signal?: AbortSignal;
}

export interface RunOptions {
  /** true: the run rejects with Fail before it begins. `signal` aborts a run in progress. */
  terminate?: boolean;
  tag?: string;
  logSeverityLevel?: 0 | 1 | 2 | 3 | 4;
  extra?: Readonly<Record<string, unknown>>;
  /** Ends the run, which then rejects with the signal's reason; the session goes on. */
  signal?: AbortSignal;
  /**
   * Gets `{ phase: 'run', status: 'progress', loaded, total }` while a long run takes: operations of the part of the model that is being
   * computed; most models are one part. Runs of less than half a second report nothing.
   */
  onProgress?: (event: ProgressEvent) => void;
}

export interface ValueMetadata {
  readonly name: string;
  readonly isTensor: boolean;
  /** Of a tensor its element type, of anything else ONNX's name of the type: 'seq(tensor(float))'. */
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
  /**
   * Milliseconds, by what took them: reading the graph (`parse_ms`; what is read while a file arrives is in `create_ms` alone), the adapter, planning and what waits for it (`shaders_ms`), all of
   * `create_ms`, the last run. Of `shaders_ms`: all planning so far (`plan_ms`), and of the last plan, side by side, until memory, pipelines,
   * weights and computed constants were there (`allocate_ms`, `pipelines_ms`, `weights_ms`, `computed_ms`). Of a plan that was kept or
   * compiled ahead, the last three and `create_ms`.
   */
  readonly timings: Readonly<Record<string, number>>;
  readonly warnings: readonly string[];
}

/** What `InferenceSession.tune()` measured. */
export interface Tuning {
  /** What was measured of the device; null on a software adapter. */
  readonly rates: Readonly<Record<string, number>> | null;
  readonly measured: readonly {
    readonly family: string;
    /** What is computed: '128x3072x768', rows by columns by depth of a product. */
    readonly problem: string;
    /** The kernel that ran before, and the one that runs from now on. */
    readonly chosen: string;
    readonly winner: string;
    /** Time of the one before, in parts of the fastest one's. */
    readonly loss: number;
    /** The fastest first; microseconds, measured and by the model of costs. */
    readonly candidates: readonly { readonly name: string; readonly took: number; readonly cost: number }[];
  }[];
}

/** What a session does, in full: nodes, kernels, memory over time. Of the shapes planned last. */
export interface Explanation {
  readonly title: string;
  /** Nodes before fusion. */
  readonly model_nodes: number;
  readonly dispatches: number;
  /** Nodes that were several in the model. */
  readonly fusions: readonly string[];
  readonly nodes: readonly (Summary['nodes'][number] & {
    /** Types of what it makes: 'float[1, 16]'. */
    readonly outputs: readonly string[];
  })[];
  readonly kernels: readonly {
    readonly name: string;
    /** Dispatches that use it. */
    readonly count: number;
    readonly nodes: readonly string[];
    readonly wgsl: string;
  }[];
  /** Kernels that were chosen among several, by what they cost in microseconds by the model of the device. */
  readonly choices: readonly {
    readonly node: string;
    readonly problem: string;
    readonly chosen: string;
    /** 'cost', or 'measured' by `tune`. */
    readonly reason: string;
    /** The cheapest first; those that do not apply, with the reason, last. */
    readonly considered: readonly { readonly name: string; readonly cost: number | null; readonly reason: string }[];
  }[];
  /** Where the session option `precision` is 'float16', by node: why it computes in float32, '' where it does not; else null. */
  readonly precision: Readonly<Record<string, string>> | null;
  readonly sizes: {
    /** Dimensions of inputs, as 'batch' or 'x[0]', that may differ from run to run without another plan. */
    readonly open: readonly { readonly name: string; readonly low: number; readonly high: number }[];
    /** Those of which each size is planned on its own, and why. */
    readonly fixed: readonly { readonly name: string; readonly reason: string }[];
  };
  /** Bytes of the activations on the GPU. */
  readonly memory: NonNullable<Summary['memory']> & {
    /** What is allocated on the device now, by all sessions. */
    readonly allocated: {
      readonly weights?: number;
      /** Constants that were computed once. */
      readonly computed?: number;
      readonly activations?: number;
      /** Of kernels. */
      readonly parameters?: number;
      /** Inputs, outputs and caches that stay on the device, and memory for the next of them. */
      readonly tensors?: number;
      /** What uploads and results pass through. */
      readonly staging?: number;
    };
    readonly tensors: readonly {
      /** Values that share these bytes. */
      readonly names: readonly string[];
      readonly bytes: number;
      /** Steps between which it is kept, both included. */
      readonly first: number;
      readonly last: number;
      readonly arena: number;
      readonly offset: number;
    }[];
  };
}

/** A tensor of another implementation of onnxruntime's API: its `type`, `dims` and `data` are read. */
export interface TensorLike {
  readonly type: string;
  readonly dims: readonly number[];
  readonly data?: unknown;
  readonly gpuBuffer?: unknown;
}

export interface MapOptions extends Omit<RunOptions, 'onProgress'> {
  /** The outputs wanted; default: all. */
  fetches?: readonly string[];
  /** Called when a batch is done; `total` is known of arrays. */
  onProgress?: (event: { readonly done: number; readonly total: number | undefined }) => void;
}

/** A tensor, a sequence of them, a map (by numbers, BigInt too, or strings), null for an empty optional. */
export type FeedValue = TensorLike | readonly TensorLike[] | ReadonlyMap<string | number | bigint, number | bigint | string> | null;
export type Feeds = Readonly<Record<string, FeedValue>>;
export type Fetches = readonly string[] | Readonly<Record<string, TensorLike | null>>;

/**
 * Outputs by name: tensors. Of models whose outputs are no tensors an array of tensors for a sequence, a Map for a map, null
 * for an empty optional.
 */
export type RunResult = Record<string, Tensor>;

/** An event of Chrome's tracing: microseconds since the session was made. */
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
  /** Rejects with an error whose `name` says what is wrong: InvalidProtobuf, NotImplemented, InvalidGraph, ... */
  static create(source: ModelSource, options?: SessionOptions): Promise<InferenceSession>;
  static create(buffer: ArrayBufferLike, byteOffset: number, byteLength?: number, options?: SessionOptions): Promise<InferenceSession>;

  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: readonly ValueMetadata[];
  readonly outputMetadata: readonly ValueMetadata[];

  run(feeds: Feeds, options?: RunOptions): Promise<RunResult>;
  run(feeds: Feeds, fetches: Fetches, options?: RunOptions): Promise<RunResult>;
  /**
   * Run batch after batch, for throughput: while the GPU computes one, the next is uploaded. Results come in the order of the
   * batches; leaving the loop ends it. A batch's arrays must not change until its results have come.
   */
  map(batches: Iterable<Feeds> | AsyncIterable<Feeds>, options?: MapOptions): AsyncGenerator<RunResult, void, void>;
  /** Note the times of every run from now on. */
  startProfiling(): Promise<void>;
  /** Stop noting; the events as a file of Chrome's tracing has them. */
  endProfiling(): Promise<TraceEvent[]>;
  /** Frees the model's memory, on the GPU too. A second call does nothing. */
  release(): Promise<void>;
  /** What the model is, where each operator runs and why, what memory it takes. */
  summary(): Promise<Summary>;
  /** All of that with the shaders and the memory plan. */
  explain(): Promise<Explanation>;
  /**
   * Measure on this device every kernel that could run the products of this model, some seconds long. The fastest run in
   * sessions that are created from now on, in later visits of this browser too. What is planned counts: `run` with inputs of
   * the shapes that matter first, where the model leaves shapes open.
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
   * Where a copy of the package is, the folder of `web/` and `pyodide/`. Default: where this module is, or where the bundler has put
   * the package's files. This and the following are read when Python starts: for the first session, or by `preload`.
   */
  baseUrl: string | undefined;
  /** Whether Python is in a worker. Default: yes where workers can be made; otherwise in the caller's thread. */
  worker: boolean | undefined;
  /**
   * A script of the page's own origin that imports web/worker.js, for pages of another origin whose policy forbids workers
   * from blob: addresses.
   */
  workerUrl: string | undefined;
  /** Folder of Pyodide. Default: `pyodide/` of the package. */
  pyodideUrl: string | undefined;
  /** pyruntime's wheel. Default: the package's. */
  wheelUrl: string | undefined;
  /**
   * Folder of the memory snapshot that Python starts from. Default: the package's, if Pyodide and the wheel are the package's,
   * too; null: start Python from nothing, as happens anyway where the snapshot does not fit the browser.
   */
  snapshotUrl: string | null | undefined;
  /**
   * The predicted work of a run, in elementary operations, up to which sessions that have the CPU, too, do it there: planning
   * and the way to the GPU take longer. It holds for models of a few nodes; default 524288, 0 sends all to the GPU. Read by
   * `create`; the session option `extra: { pyruntime: { host_work } }` sets it for one session.
   */
  hostWork: number;
  /**
   * Whether a session whose runs follow from one another, as in a loop that feeds the likeliest token again, begins the next
   * ones before they are requested; their results are used only where the inputs are equal to the predicted ones. Default true; read by `create`.
   */
  runAhead: boolean;
  readonly versions: { readonly pyruntime: string; readonly pyodide: string };
  /** Taken from onnxruntime-web; nothing here depends on them. */
  wasm: Record<string, unknown>;
  webgl: Record<string, unknown>;
  webgpu: {
    /**
     * The device that sessions compute on, where Python is in this thread; set before the first session, the one that they
     * shall compute on.
     */
    get device(): Promise<GpuDevice>;
    set device(device: GpuDevice);
    [name: string]: unknown;
  };
  /** Least severe messages of the runtime that the console shows; default 'warning'. */
  logLevel?: 'verbose' | 'info' | 'warning' | 'error' | 'fatal';
  [name: string]: unknown;
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

/** The operators that exist here, by domain ('' is ONNX's own). Some exist for newer opsets only. */
export declare function operators(): Promise<Record<string, string[]>>;

/** The GPU adapter that sessions use, null where there is none. */
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
