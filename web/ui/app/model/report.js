// @ts-check
import { barList, columns } from '../charts.js';
import { copyButton, h } from '../../dom.js';
import { formatBytes, formatCount, formatShape, formatTime, median } from '../format.js';
import { InputEditor } from './inputs.js';
import { kernelsView } from './kernels.js';
import { memoryView } from './memory.js';
import { nodesView } from './nodes.js';
import { outputsView } from './outputs.js';
import { RANDOM_INPUT } from './random_input.js';
import { table } from './table.js';

/** @typedef {import('../../../pyruntime.js').InferenceSession} InferenceSession */
/** @typedef {import('../../../pyruntime.js').ValueMetadata} ValueMetadata */
/** @typedef {import('../../../pyruntime.js').Explanation} Explanation */

/** The part of the page that shows a model and how it runs. */
export class Report {
  /**
   * @param {object} model
   * @param {string} model.name
   * @param {number} model.size
   * @param {string | null} model.link
   * @param {InferenceSession} model.session
   * @param {Map<string, {label: string, size: number}>} model.symbols
   */
  constructor({ name, size, link, session, symbols }) {
    this.session = session;
    this.facts = h('p', { class: 'report-facts' });
    this.runButton = h('button', { type: 'submit' }, 'Run');
    this.stopButton = h('button', { type: 'button', class: 'quiet', hidden: true }, 'Cancel');
    this.times = h('p', { class: 'report-times', role: 'status' });
    this.editors = session.inputMetadata.filter(({ isTensor }) => isTensor).map((input) => new InputEditor(input));
    /** @type {Map<string, HTMLInputElement>} */
    this.sizeInputs = new Map();
    const sizeFields = [...symbols].map(([key, { label, size: begin }]) => {
      const input = h('input', { type: 'number', min: 0, step: 1, value: begin, required: true, inputmode: 'numeric' });
      this.sizeInputs.set(key, input);
      return h('label', { class: 'size' }, h('span', {}, label), input);
    });
    this.form = h('form', { class: 'run' },
      h('div', { class: 'inputs' }, ...this.editors.map(({ element }) => element)),
      h('div', { class: 'run-foot' }, ...sizeFields, this.runButton, this.stopButton));
    this.nodes = h('div');
    this.memory = h('div');
    this.kernels = h('div');
    this.outputs = h('div');
    this.speed = h('div');
    this.profileButton = h('button', { type: 'button', class: 'quiet' }, 'Profile');
    this.profile = h('div');
    this.compareButton = h('button', { type: 'button', class: 'quiet' }, 'Measure GPU and CPU');
    this.comparison = h('div');
    this.element = h('article', { class: 'report', 'aria-label': `Report on ${name}` },
      h('header', {}, h('h3', {}, name), h('span', { class: 'report-size' }, formatBytes(size)), link ? copyButton(link, 'Copy link') : null, this.facts),
      this.form,
      h('p', { class: 'note' }, `Random input: ${RANDOM_INPUT}.`),
      this.times,
      part('Speed', h('div', { class: 'measure' }, this.speed, h('div', { class: 'ways' }, this.compareButton), this.comparison)),
      part('Where the time goes', h('div', { class: 'profile' }, this.profile, h('div', { class: 'ways' }, this.profileButton))),
      this.memory,
      this.outputs,
      h('div', { class: 'report-grid' }, valueTable('Inputs', session.inputMetadata), valueTable('Outputs', session.outputMetadata)),
      part('Operators', this.nodes), part('Kernels', this.kernels));
  }

  /** Return the sizes that the visitor chose for symbolic dimensions. @returns {Map<string, number>} */
  sizes() {
    return new Map([...this.sizeInputs].map(([key, input]) => [key, input.valueAsNumber]));
  }

  /** Return the inputs that the visitor chose. @returns {Promise<Record<string, import('../../../pyruntime.js').Tensor>>} */
  async feeds() {
    const sizes = this.sizes();
    const made = this.editors.map(async (editor) => /** @type {const} */ ([editor.input.name, await editor.tensor(sizes)]));
    return Object.fromEntries(await Promise.all(made));
  }

  /** @param {boolean} busy */
  setBusy(busy) {
    for (const button of [this.runButton, this.profileButton, this.compareButton]) button.disabled = busy;
    this.stopButton.hidden = !busy;
  }

  /** @param {Explanation} explanation */
  show({ nodes, memory, dispatches, kernels }) {
    const count = (/** @type {string} */ where) => nodes.filter(({ placement }) => placement === where).length;
    const where = [[count('gpu'), 'on the GPU'], [count('host'), 'in NumPy'], [count('none'), 'at no cost']]
      .filter(([many]) => many).map((each) => each.join(' ')).join(', ');
    const work = dispatches ? `; ${formatCount(dispatches, 'GPU dispatch', 'es')}, ${formatCount(kernels.length, 'kernel')}` : '';
    this.facts.textContent = `${formatCount(nodes.length, 'node')}, ${where}${work}`;
    this.nodes.replaceChildren(nodesView(nodes));
    this.memory.replaceChildren(...(dispatches ? [part('Memory', memoryView(memory))] : []));
    this.kernels.replaceChildren(kernelsView(kernels, nodes));
  }

  /** @param {number} firstMs @param {readonly number[]} [later] milliseconds of the runs after the first; empty while they are measured */
  showTimes(firstMs, later = []) {
    const middle = median(later);
    const first = h('span', {}, 'First run ', h('b', {}, formatTime(firstMs)));
    const again = !later.length ? h('span', {}, 'measuring')
      : h('span', {}, 'then ', h('b', {}, formatTime(middle)), ` (median of ${formatCount(later.length, 'round trip')})`);
    this.times.replaceChildren(first, ', ', again);
    if (!later.length) return;
    this.speed.replaceChildren(barList([{ label: 'First run', value: firstMs, text: formatTime(firstMs) },
      { label: 'Later runs', value: middle, text: formatTime(middle), kind: 'peak' }]), ...(later.length > 1 ? [columns(later, middle)] : []));
  }

  /** @param {string} text */
  say(text) {
    this.times.textContent = text;
  }

  /** @param {Record<string, any>} outputs */
  showOutputs(outputs) {
    this.outputs.replaceChildren(outputsView(outputs));
  }
}

/** @param {string} title @param {HTMLElement} content */
function part(title, content) {
  return h('section', {}, h('h4', {}, title), content);
}

/** @param {string} title @param {readonly ValueMetadata[]} values */
function valueTable(title, values) {
  const rows = values.map(({ name, type, shape }) => h('tr', {}, h('th', { scope: 'row' }, name),
    h('td', {}, `${type} ${formatShape(shape.map((dimension) => (dimension === '' ? null : dimension)))}`)));
  return h('div', {}, h('h4', {}, title), table(title, ['Name', 'Tensor'], rows));
}
