/**
 * Messages between a page and its worker. Each request has an id and gets one reply, a value or an error; progress may
 * come before it.
 */
import type { ProgressEvent, TensorType } from './pyruntime.js';

/** A tensor under way: raw little-endian elements, an array of strings for type `string`. */
export interface WireTensor {
  type: TensorType;
  dims: number[];
  data: ArrayBuffer | string[];
}

export interface StartArguments {
  /** Where Pyodide may be, in the order in which to try. */
  pyodideUrls: string[];
  wheelUrl: string;
  /** Folder of a memory snapshot taken from the first Pyodide with that wheel; without it Python starts from nothing. */
  snapshotUrl?: string;
}

export type WireSource = string | Blob | ArrayBuffer;

export interface CreateArguments {
  model: WireSource;
  externalData: { path: string; data: WireSource }[];
  options: object;
}

export interface RunArguments {
  session: number;
  feeds: Record<string, WireTensor>;
  /** null: all outputs. */
  fetches: string[] | null;
  options: object;
}

export interface ReleaseArguments {
  session: number;
}

export interface CancelArguments {
  /** Id of a 'create' or 'run'; one that has been answered is not touched. */
  request: number;
}

/** A function of `pyruntime.bridge`, by name. */
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

export type Answer =
  | { id: number; value: unknown; error?: undefined; progress?: undefined }
  | { id: number; error: WireError; progress?: undefined }
  | { id: number; progress: ProgressEvent };
