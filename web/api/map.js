// @ts-check
/** Run batches in a pipeline: the next one is uploaded while the GPU computes the current one. */

import { optionsOf } from './arguments.js';

/** Runs in flight: one is computed, the next is uploaded. */
const RUNS = 2;

/**
 * Yield a session's results for each batch, in order.
 * @param {import('./session.js').InferenceSession} session
 * @param {Iterable<import('../pyruntime.js').Feeds> | AsyncIterable<import('../pyruntime.js').Feeds>} batches
 * @param {import('../pyruntime.js').MapOptions} [given]
 * @returns {AsyncGenerator<Record<string, any>, void, void>}
 */
export async function* mapBatches(session, batches, given) {
  const { fetches, onProgress, ...options } = optionsOf('options', given);
  const total = Array.isArray(batches) ? batches.length : undefined;
  /** @type {Promise<Record<string, any>>[]} */
  const running = [];
  let done = 0;
  const next = async () => {
    const outputs = await running[0];
    running.shift();
    done += 1;
    onProgress?.({ done, total });
    return outputs;
  };
  try {
    for await (const feeds of batches) {
      const run = session.run(feeds, fetches, options);
      run.catch(() => {}); // the loop reports the error when it awaits this run
      running.push(run);
      if (running.length === RUNS) yield await next();
    }
    while (running.length) yield await next();
  } finally {
    for (const run of running) run.then(dispose, () => {});
  }
}

/** Free outputs on the GPU that are not passed to a caller. @param {Record<string, any>} outputs */
function dispose(outputs) {
  for (const tensor of Object.values(outputs)) if (tensor?.location === 'gpu-buffer') tensor.dispose();
}
