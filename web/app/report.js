// @ts-check
import { h } from './dom.js';
import { formatBytes, formatCount, formatShape, formatTime, formatValue } from './format.js';
import { RANDOM_INPUT } from './random_input.js';

/** @typedef {import('../pyruntime.js').InferenceSession} InferenceSession */
/** @typedef {import('../pyruntime.js').Tensor} Tensor */
/** @typedef {import('../pyruntime.js').ValueMetadata} ValueMetadata */
/** @typedef {import('../pyruntime.js').Summary} Summary */
/** @typedef {Summary['nodes']} Nodes */
/** @typedef {NonNullable<Summary['memory']>} Memory */

const VALUES_SHOWN = 8;
const STRIP_LIMIT = 2000;

/** @type {Record<string, string>} */
const BADGES = { gpu: 'GPU', host: 'NumPy', none: 'no cost' };

/** What is in one model and how it runs, as a part of the page. */
export class Report {
  /**
   * @param {object} model
   * @param {string} model.name
   * @param {number | null} model.size
   * @param {InferenceSession} model.session
   * @param {Map<string, {label: string, size: number}>} model.symbols
   */
  constructor({ name, size, session, symbols }) {
    this.session = session;
    this.facts = h('p', { class: 'report-facts' });
    this.runButton = h('button', { type: 'submit' }, 'Run on random input');
    this.times = h('p', { class: 'report-times', role: 'status' });
    /** @type {Map<string, HTMLInputElement>} */
    this.sizeInputs = new Map();
    const sizeFields = [...symbols].map(([key, { label, size: begin }]) => {
      const input = h('input', { type: 'number', min: 0, step: 1, value: begin, required: true, inputmode: 'numeric' });
      this.sizeInputs.set(key, input);
      return h('label', { class: 'size' }, h('span', {}, label), input);
    });
    this.form = h('form', { class: 'run' }, ...sizeFields, this.runButton);
    this.operators = h('div');
    this.memory = h('div');
    this.outputs = h('div');
    const bytes = size === null ? null : h('span', { class: 'report-size' }, formatBytes(size));
    this.element = h('article', { class: 'report', 'aria-label': `Report on ${name}` },
      h('header', {}, h('h3', {}, name), bytes, this.facts),
      this.form,
      h('p', { class: 'note' }, `Random input: ${RANDOM_INPUT}.`),
      this.times,
      h('div', { class: 'report-grid' },
        valueTable('Inputs', session.inputMetadata),
        valueTable('Outputs', session.outputMetadata)),
      this.outputs,
      this.memory,
      this.operators);
  }

  /** The sizes that the visitor gave the symbolic dimensions. @returns {Map<string, number>} */
  sizes() {
    return new Map([...this.sizeInputs].map(([key, input]) => [key, input.valueAsNumber]));
  }

  /** @param {boolean} busy */
  setBusy(busy) {
    this.runButton.disabled = busy;
    this.runButton.textContent = busy ? 'Running' : 'Run on random input';
  }

  /** @param {Summary} summary */
  showSummary({ nodes, memory, dispatches, pipelines }) {
    const count = (/** @type {string} */ where) => nodes.filter(({ placement }) => placement === where).length;
    const where = [[count('gpu'), 'on the GPU'], [count('host'), 'in NumPy'], [count('none'), 'at no cost']]
      .filter(([many]) => many).map((part) => part.join(' ')).join(', ');
    const work = dispatches ? `; ${formatCount(dispatches, 'GPU dispatch', 'es')}, ${formatCount(pipelines, 'pipeline')}` : '';
    this.facts.textContent = `${formatCount(nodes.length, 'node')}, ${where}${work}`;
    this.operators.replaceChildren(operatorTable(nodes));
    this.memory.replaceChildren(...(memory ? [memoryFigure(memory)] : []));
  }

  /** @param {{firstMs: number, medianMs: number | null, runs: number}} times */
  showTimes({ firstMs, medianMs, runs }) {
    const first = h('span', {}, 'First run ', h('b', {}, formatTime(firstMs)));
    const again = medianMs === null ? h('span', {}, 'measuring')
      : h('span', {}, 'then ', h('b', {}, formatTime(medianMs)), ` (median of ${formatCount(runs, 'round trip')})`);
    this.times.replaceChildren(first, ', ', again);
  }

  /** @param {Record<string, Tensor>} outputs */
  showOutputs(outputs) {
    const rows = Object.entries(outputs).map(([name, tensor]) => h('tr', {},
      h('th', { scope: 'row' }, name),
      h('td', {}, `${tensor.type} ${formatShape(tensor.dims)}`),
      h('td', {}, range(tensor)),
      h('td', { class: 'values' }, firstValues(tensor))));
    this.outputs.replaceChildren(h('h4', {}, 'Results'), table('Results', ['Output', 'Tensor', 'Range', 'First values'], rows));
  }
}

/** @param {string} title @param {readonly ValueMetadata[]} values */
function valueTable(title, values) {
  const rows = values.map(({ name, type, shape }) => h('tr', {}, h('th', { scope: 'row' }, name),
    h('td', {}, `${type} ${formatShape(shape.map((dimension) => (dimension === '' ? null : dimension)))}`)));
  return h('div', {}, h('h4', {}, title), table(title, ['Name', 'Tensor'], rows));
}

/** Operators by kind, with where they run and why; every node below. @param {Nodes} nodes */
function operatorTable(nodes) {
  /** @type {Map<string, {name: string, placement: string, reasons: Set<string>, count: number}>} */
  const kinds = new Map();
  for (const { op_type: type, domain, placement, reason } of nodes) {
    // Operators of the runtime's own domain are fused ones: their name says of what.
    const name = domain && domain !== 'pyruntime' ? `${domain}.${type}` : type;
    const kind = kinds.get(`${name} ${placement}`) ?? { name, placement, reasons: new Set(), count: 0 };
    kind.count += 1;
    if (reason) kind.reasons.add(reason);
    kinds.set(`${name} ${placement}`, kind);
  }
  const rows = [...kinds.values()].sort((a, b) => b.count - a.count).map(({ name, placement, reasons, count }) => (
    h('tr', {}, h('th', { scope: 'row' }, name), h('td', { class: 'number' }, count), h('td', {}, badge(placement)),
      h('td', { class: 'reason' }, [...reasons].join('; ')))));
  return h('div', {}, h('h4', {}, 'Operators'), strip(nodes), table('Operators', ['Operator', 'Nodes', 'Runs on', 'Why'], rows),
    h('details', {}, h('summary', {}, `Every node, in order (${nodes.length})`),
      table('Nodes', ['Node', 'Operator', 'Runs on', 'Kernels, or why'], nodes.map((node) => (
        h('tr', {}, h('th', { scope: 'row' }, node.name || '(unnamed)'), h('td', {}, node.op_type),
          h('td', {}, badge(node.placement)), h('td', { class: 'reason' }, node.reason || node.kernels.join(', '))))))));
}

/** The nodes in order as thin pieces, coloured by where they run: how often work goes between GPU and host. @param {Nodes} nodes */
function strip(nodes) {
  if (nodes.length < 2 || nodes.length > STRIP_LIMIT) return null;
  return h('div', { class: 'strip', 'aria-hidden': 'true', data: { sparse: nodes.length < 120 } },
    ...nodes.map(({ name, op_type: type, placement }) => h('span', { title: name ? `${type}: ${name}` : type, data: { placement } })));
}

/** @param {string} title @param {string[]} columns @param {HTMLElement[]} rows */
function table(title, columns, rows) {
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': title },
    h('table', {},
      h('thead', {}, h('tr', {}, ...columns.map((column) => h('th', { scope: 'col' }, column)))),
      h('tbody', {}, ...rows)));
}

/** @param {string} placement */
function badge(placement) {
  return h('span', { class: 'badge', data: { placement } }, BADGES[placement] ?? placement);
}

/** Three bars on one scale: what is allocated, the least possible, and what it would be without reuse. @param {Memory} memory */
function memoryFigure({ peak, lower_bound: bound, total_without_reuse: total, weights }) {
  const scale = Math.max(peak, bound, total, 1);
  const row = (/** @type {string} */ label, /** @type {number} */ bytes, /** @type {string} */ kind) => {
    const bar = h('span', { class: 'memory-bar', data: { kind } });
    bar.style.setProperty('--part', String(bytes / scale));
    return h('div', {}, h('dt', {}, label), h('dd', {}, h('span', { class: 'memory-track' }, bar), formatBytes(bytes)));
  };
  return h('figure', { class: 'memory' },
    h('figcaption', {}, 'GPU memory for activations', weights ? h('span', {}, `, beside ${formatBytes(weights)} of weights`) : null),
    h('dl', {},
      row('Without reuse', total, 'total'),
      row('Planned peak', peak, 'peak'),
      row('Lower bound', bound, 'bound')));
}

/** @param {Tensor} tensor */
function range(tensor) {
  const data = tensor.data;
  if (tensor.type === 'string' || !data.length || /int4|bfloat16/.test(tensor.type)) return '';
  let [low, high, nans] = [/** @type {any} */ (Infinity), /** @type {any} */ (-Infinity), 0];
  for (const value of /** @type {Iterable<any>} */ (data)) {
    if (value !== value) nans += 1;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (tensor.type === 'float16' && data instanceof Uint16Array) return 'bits';
  const span = nans === data.length ? '' : `${formatValue(low)} to ${formatValue(high)}`;
  return nans ? `${span} ${nans} NaN`.trim() : span;
}

/** @param {Tensor} tensor */
function firstValues(tensor) {
  const shown = [.../** @type {any} */ (tensor.data.slice(0, VALUES_SHOWN))].map(formatValue).join(', ');
  return tensor.data.length > VALUES_SHOWN ? `${shown}, …` : shown;
}
