// @ts-check
import { h } from '../../dom.js';
import { formatCount } from '../format.js';
import { badge, table } from './table.js';

/** @typedef {import('../../../pyruntime.js').Explanation['nodes']} Nodes */

const STRIP_LIMIT = 2000;
const ROWS = 200;

/** Return operators by type with placement and reasons, and a searchable list of all nodes. @param {Nodes} nodes */
export function nodesView(nodes) {
  return h('div', {}, strip(nodes), operatorTable(nodes), search(nodes));
}

/** @param {Nodes} nodes */
function operatorTable(nodes) {
  /** @type {Map<string, {name: string, placement: string, reasons: Set<string>, count: number}>} */
  const kinds = new Map();
  for (const { op_type: type, domain, placement, reason } of nodes) {
    // Operators of the runtime's domain are fused; their names list the parts.
    const name = domain && domain !== 'pyruntime' ? `${domain}.${type}` : type;
    const kind = kinds.get(`${name} ${placement}`) ?? { name, placement, reasons: new Set(), count: 0 };
    kind.count += 1;
    if (reason && placement !== 'gpu') kind.reasons.add(reason);
    kinds.set(`${name} ${placement}`, kind);
  }
  const rows = [...kinds.values()].sort((a, b) => b.count - a.count).map(({ name, placement, reasons, count }) => (
    h('tr', {}, h('th', { scope: 'row' }, name), h('td', { class: 'number' }, count), h('td', {}, badge(placement)),
      h('td', { class: 'reason' }, [...reasons].join('; ')))));
  return table('Operators', ['Operator', 'Nodes', 'Runs on', 'Why'], rows);
}

/** Return the nodes in order as a strip, colored by placement, which shows how often work moves between GPU and host. @param {Nodes} nodes */
function strip(nodes) {
  if (nodes.length < 2 || nodes.length > STRIP_LIMIT) return null;
  return h('div', { class: 'strip', 'aria-hidden': 'true', data: { sparse: nodes.length < 120 } },
    ...nodes.map(({ name, op_type: type, placement }) => h('span', { title: name ? `${type}: ${name}` : type, data: { placement } })));
}

/** @param {Nodes} nodes */
function search(nodes) {
  const words = h('input', { type: 'search', placeholder: 'Name, operator, kernel or reason', 'aria-label': 'Search the nodes' });
  const place = h('select', { 'aria-label': 'Nodes that run' },
    ...[['', 'everywhere'], ['gpu', 'on the GPU'], ['host', 'in NumPy'], ['none', 'at no cost']].map(([value, label]) => h('option', { value }, label)));
  const found = h('p', { class: 'note', role: 'status' });
  const more = h('button', { type: 'button', class: 'quiet small', hidden: true }, 'Show all of them');
  const body = h('div');
  const rows = nodes.map((node) => ({
    node, text: [node.name, node.op_type, node.domain, node.reason, ...node.kernels, ...node.outputs].join(' ').toLowerCase() }));
  const show = (most = ROWS) => {
    const terms = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = rows.filter(({ node, text }) => (
      (!place.value || node.placement === place.value) && terms.every((term) => text.includes(term))));
    found.textContent = fitting.length === nodes.length ? formatCount(nodes.length, 'node') : `${fitting.length} of ${formatCount(nodes.length, 'node')}`;
    more.hidden = fitting.length <= most;
    body.replaceChildren(table('Nodes', ['Node', 'Operator', 'Runs on', 'Kernels, or why', 'Makes'], fitting.slice(0, most).map(({ node }) => row(node))));
  };
  words.addEventListener('input', () => show());
  place.addEventListener('change', () => show());
  more.addEventListener('click', () => show(Infinity));
  show();
  return h('div', { class: 'search' }, h('div', { class: 'ways', role: 'search' }, words, place), found, body, more);
}

/** @param {Nodes[number]} node */
function row(node) {
  const why = node.placement === 'gpu' && node.kernels.length ? node.kernels.join(', ') : node.reason;
  return h('tr', {}, h('th', { scope: 'row' }, node.name || '(unnamed)'), h('td', {}, node.op_type), h('td', {}, badge(node.placement)),
    h('td', { class: 'reason' }, why), h('td', { class: 'reason' }, node.outputs.join(', ')));
}
