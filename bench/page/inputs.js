// @ts-check
/** Inputs from a seed: every engine and every machine gets the same numbers. */

/** @typedef {{dtype: string, shape: number[], high?: number, fill?: number}} InputSpec */

/** Uniform numbers in [0, 1): the mulberry32 generator. @param {number} seed */
function uniform(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** N(0, 1) by Box and Muller. @param {() => number} next */
function normal(next) {
  return Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
}

/** @type {Record<string, any>} */
const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, int16: Int16Array, int32: Int32Array,
  int64: BigInt64Array, uint8: Uint8Array, bool: Uint8Array, uint16: Uint16Array, uint32: Uint32Array,
};

/**
 * The data of every input: integers below `high` (2 where it is missing), floats normal, or `fill` throughout.
 * @param {Record<string, InputSpec>} specs
 * @returns {Record<string, {type: string, data: any, dims: number[]}>}
 */
export function makeInputs(specs) {
  const next = uniform(1);
  return Object.fromEntries(Object.entries(specs).map(([name, { dtype, shape, high = 2, fill }]) => {
    const data = new ARRAYS[dtype](shape.reduce((product, dim) => product * dim, 1));
    const wide = data instanceof BigInt64Array;
    const float = dtype.startsWith('float');
    for (let i = 0; i < data.length; i++) {
      const value = fill ?? (float ? normal(next) : Math.floor(next() * high));
      data[i] = wide ? BigInt(value) : value;
    }
    return [name, { type: dtype, data, dims: shape }];
  }));
}
