// @ts-check
import { COLORS, bar, stack, swatch } from '../charts.js';
import { h, saveAs } from '../../dom.js';
import { formatCount, formatTime } from '../format.js';
import { table } from './table.js';

/** @typedef {import('../../../pyruntime.js').TraceEvent} TraceEvent */
/** @typedef {import('../../../pyruntime.js').InferenceSession} InferenceSession */
/** @typedef {{name: string, onHost: boolean, us: number, calls: number, kernels: Set<string>}} Row */
/** @typedef {{node: string, row: Row, us: number}} Step */

const RUNS = 10;
const MOST_STEPS = 2000;
const MOST_NAMES = 2;

/**
 * Measure where the time of a run goes.
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
  return view(events);
}

/** Return the operators of runs by type, the slowest first; and the nodes in order. @param {TraceEvent[]} events kernels of a node follow the node */
function gather(events) {
  /** @type {Map<string, Row>} */
  const rows = new Map();
  /** @type {Map<string, Step>} */
  const steps = new Map();
  /** @type {Row | undefined} */
  let row;
  for (const { cat, name, dur, args } of events) {
    if (cat === 'Kernel') row?.kernels.add(name);
    if (cat !== 'Node') continue;
    const onHost = args.provider === 'CPUExecutionProvider';
    const key = `${args.op_name} ${onHost}`;
    row = rows.get(key) ?? { name: String(args.op_name), onHost, us: 0, calls: 0, kernels: new Set() };
    rows.set(key, row);
    row.us += dur / RUNS;
    row.calls += 1 / RUNS;
    const node = name.replace(/_kernel_time$/, '');
    const step = steps.get(`${args.node_index} ${name}`) ?? { node, row, us: 0 };
    steps.set(`${args.node_index} ${name}`, step);
    step.us += dur / RUNS;
  }
  return { rows: [...rows.values()].sort((a, b) => b.us - a.us), steps: [...steps.values()] };
}

/** @param {string[]} names */
function shortened(names) {
  return names.slice(0, MOST_NAMES).join(', ') + (names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : '');
}

/** @param {TraceEvent[]} events */
function view(events) {
  const { rows, steps } = gather(events);
  const total = rows.reduce((sum, { us }) => sum + us, 0) || 1;
  const onGpuClock = events.some(({ cat, args }) => cat === 'Node' && args.clock === 'gpu');
  const save = h('button', { type: 'button', class: 'quiet small', on: {
    click: () => saveAs(new Blob([JSON.stringify(events)], { type: 'application/json' }), 'trace.json') } }, 'Save the trace');
  const colorOf = (/** @type {Row} */ row) => Math.min(rows.indexOf(row), COLORS - 1);
  const percent = (/** @type {number} */ us) => `${(100 * us / total).toFixed(1)}%`;
  const parts = steps.map(({ node, row, us }) => ({ title: `${row.name} ${node}: ${formatTime(us / 1000)}`, value: us, color: colorOf(row) }));
  const most = rows.slice(0, 3).map(({ name, us }) => `${name} ${percent(us)}`).join(', ');
  return h('div', { class: 'times' },
    h('div', { class: 'row-head' }, h('p', { class: 'note' }, `${formatTime(total / 1000)} a run in all operators, mean of ${formatCount(RUNS, 'run')}; `
      + `${onGpuClock ? "by the GPU's clock" : 'wall time of one step at a time, an upper bound'}.`), save),
    steps.length > 1 && steps.length <= MOST_STEPS && h('figure', {}, stack(parts, `One run in order, each operator as wide as its time. The most: ${most}`),
      h('figcaption', { class: 'note' }, 'One run from left to right: each operator is as wide as its time, in the color of its row.')),
    table('Profile', ['Operator, kernels', 'Runs on', 'Time', 'Calls', 'Share'], rows.map((row) => h('tr', {},
      h('th', { scope: 'row' }, swatch(colorOf(row)), row.name, h('code', { class: 'kernel-names' }, shortened([...row.kernels]))),
      h('td', {}, row.onHost ? 'NumPy' : 'GPU'),
      h('td', { class: 'number' }, formatTime(row.us / 1000)), h('td', { class: 'number' }, String(Number(row.calls.toFixed(1)))),
      h('td', {}, h('span', { class: 'share' }, bar(row.us / (rows[0].us || 1), row.onHost ? 'host' : 'peak'), percent(row.us)))))));
}
