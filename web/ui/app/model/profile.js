// @ts-check
import { h, saveAs } from '../../dom.js';
import { formatCount, formatTime } from '../format.js';
import { table } from './table.js';

/** @typedef {import('../../../pyruntime.js').TraceEvent} TraceEvent */
/** @typedef {import('../../../pyruntime.js').InferenceSession} InferenceSession */

const RUNS = 10;

/**
 * Where the time of a run goes.
 * @param {InferenceSession} session
 * @param {Record<string, import('../../../pyruntime.js').Tensor>} feeds
 * @param {AbortSignal} signal
 * @param {(done: number, total: number) => void} onProgress
 */
export async function profile(session, feeds, signal, onProgress) {
  await session.run(feeds, { signal });
  await session.startProfiling();
  /** @type {TraceEvent[]} */
  let events = [];
  try {
    for (let run = 0; run < RUNS; run++) {
      onProgress(run, RUNS);
      await session.run(feeds, { signal });
    }
  } finally {
    events = await session.endProfiling();
  }
  return view(events, RUNS);
}

/** @param {TraceEvent[]} events @param {number} runs */
function view(events, runs) {
  /** @type {Map<string, {name: string, where: string, us: number, calls: number}>} */
  const rows = new Map();
  for (const { cat, name, dur, args } of events) {
    const onHost = cat === 'Node' && args.provider === 'CPUExecutionProvider';
    if (cat !== 'Kernel' && !onHost) continue;
    const [label, where] = onHost ? [String(args.op_name), 'host'] : [name, 'gpu'];
    const row = rows.get(where + label) ?? { name: label, where, us: 0, calls: 0 };
    row.us += dur / runs;
    row.calls += 1 / runs;
    rows.set(where + label, row);
  }
  const sorted = [...rows.values()].sort((a, b) => b.us - a.us);
  const [most, total] = [sorted[0]?.us || 1, sorted.reduce((sum, { us }) => sum + us, 0)];
  const onGpuClock = events.some(({ cat, args }) => cat === 'Node' && args.clock === 'gpu');
  const save = h('button', { type: 'button', class: 'quiet small', on: {
    click: () => saveAs(new Blob([JSON.stringify(events)], { type: 'application/json' }), 'trace.json') } }, 'Save the trace');
  return h('div', {},
    h('div', { class: 'row-head' }, h('p', { class: 'note' }, `${formatTime(total / 1000)} a run in kernels and operators, mean of ${formatCount(runs, 'run')}; `
      + `${onGpuClock ? "by the GPU's clock" : 'wall time of one step at a time, an upper bound'}.`), save),
    table('Profile', ['Kernel or operator', 'Runs on', 'Time', 'Calls', 'Share'], sorted.map(({ name, where, us, calls }) => {
      const bar = h('span', { class: 'memory-bar', data: { kind: where === 'gpu' ? 'peak' : 'host' } });
      bar.style.setProperty('--part', String(us / most));
      return h('tr', {}, h('th', { scope: 'row' }, name), h('td', {}, where === 'gpu' ? 'GPU' : 'NumPy'),
        h('td', { class: 'number' }, formatTime(us / 1000)), h('td', { class: 'number' }, String(Number(calls.toFixed(1)))),
        h('td', {}, h('span', { class: 'share' }, h('span', { class: 'memory-track' }, bar), `${(100 * us / (total || 1)).toFixed(1)}%`)));
    })));
}
