// @ts-check
/** The rate of matrix products by a library: the time of eight more products in a chain. */
import { modelOf } from '../../onnx/writer.js';
import { nameOf } from './engines.js';
import { quantile, rounded } from './statistics.js';

const SIDES = [256, 512, 1024, 2048, 4096];
const MORE = 8;
/** Least milliseconds of the products; if they take less, larger ones are measured. */
const LEAST_MS = 50;
const RUNS = 7;

/**
 * Return a model of y[i, 0] = sum of row i of a^(count + 1), with a[i, j] = x[i] x[j], so that no large tensor is uploaded or read back.
 * @param {number} count number of products
 */
function chain(count) {
  /** @type {import('../../onnx/writer.js').Node[]} */
  const nodes = [['Unsqueeze', ['x', 'one'], 'column'], ['Unsqueeze', ['x', 'zero'], 'row'], ['Mul', ['column', 'row'], 'p0']];
  for (let i = 1; i <= count; i++) nodes.push(['MatMul', [`p${i - 1}`, 'p0'], `p${i}`]);
  nodes.push(['ReduceSum', [`p${count}`, 'one'], 'y']);
  return modelOf('products', nodes, { zero: 0, one: 1 }, [['x', 'float32', ['n']]], ['y', 'float32', ['n', 'k']]);
}

/**
 * Return the median milliseconds of a run, without the first ones.
 * @param {import('./engines.js').Engine} engine
 * @param {number} count
 * @param {number} side
 * @param {AbortSignal} signal
 */
async function chainTime(engine, count, side, signal) {
  const x = { type: 'float32', data: new Float32Array(side).fill(side ** -0.5), dims: [side] };
  const { run, release } = await engine.load(chain(count), { x }, ['y']);
  try {
    const times = [];
    for (let i = 0; i < RUNS; i++) {
      signal.throwIfAborted();
      const begin = performance.now();
      const { y } = await run();
      times.push(performance.now() - begin);
      if (!(Math.abs(y.data[0] - 1) < 1e-3)) throw new Error(`A product of side ${side} gave ${y.data[0]} instead of 1.`);
    }
    return quantile(times.slice(2), 0.5);
  } finally {
    await release();
  }
}

/**
 * @param {import('./engines.js').Engine} engine
 * @param {AbortSignal} signal
 * @param {(doing: string) => void} tell
 * @returns {Promise<{side: number, gflop_per_s: number}>} float32, of the smallest side whose products take long enough
 */
export async function productRate(engine, signal, tell) {
  for (const side of SIDES) {
    tell(`${nameOf(engine)}: ${side} by ${side}`);
    const long = await chainTime(engine, 1 + MORE, side, signal);
    const isLast = side === SIDES[SIDES.length - 1];
    if (long < LEAST_MS && !isLast) continue;
    const took = long - await chainTime(engine, 1, side, signal);
    if (took >= LEAST_MS / 2 || (isLast && took > 0)) return { side, gflop_per_s: rounded(2 * side ** 3 * MORE / took / 1e6) };
  }
  throw new Error('The times of one product and of nine do not differ.');
}
