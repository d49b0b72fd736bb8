// @ts-check
import { copyButton, h } from '../../dom.js';
import { formatCount } from '../format.js';

/** @typedef {import('../../../pyruntime.js').Explanation['kernels']} Kernels */

const KEYWORDS = 'alias|break|case|const|const_assert|continue|continuing|default|discard|else|enable|false|fn|for|if|let|loop'
  + '|override|return|struct|switch|true|var|while';
const TYPES = 'vec[234]|mat[234]x[234]|array|atomic|ptr|f32|i32|u32|f16|bool';
const TOKENS = new RegExp(`(//[^\\n]*)|(@\\w+)|\\b(${KEYWORDS})\\b|\\b(${TYPES})\\b|\\b(\\d[\\w.]*)`, 'g');
const CLASSES = ['comment', 'attribute', 'keyword', 'type', 'number'];

/** @typedef {import('../../../pyruntime.js').Explanation['nodes']} Nodes */

/** Return the WGSL of all kernels, rendered when it is opened. @param {Kernels} kernels @param {Nodes} operators */
export function kernelsView(kernels, operators) {
  if (!kernels.length) {
    const later = operators.some(({ placement }) => placement === 'gpu');
    return h('p', { class: 'note' }, later ? 'Chosen when the shapes are known, in the first run.' : 'Nothing of this model runs on the GPU here.');
  }
  return h('div', { class: 'kernels' }, ...kernels.map(({ name, count, nodes, wgsl }) => {
    const types = new Set(operators.filter((node) => node.kernels.includes(name)).map(({ op_type: type }) => type));
    const details = h('details', {}, h('summary', {}, [...types].join(', '), ' ', h('code', { class: 'soft' }, name), h('span', { class: 'soft' },
      ` ${formatCount(count, 'dispatch', 'es')}, ${formatCount(wgsl.split('\n').length, 'line')}`)));
    details.addEventListener('toggle', () => {
      if (details.children.length > 1) return;
      const copy = copyButton(wgsl, 'Copy', `Copy ${name}`);
      details.append(h('div', { class: 'row-head' }, h('p', { class: 'note' }, `For ${nodes.slice(0, 8).join(', ')}${nodes.length > 8 ? ` and ${nodes.length - 8} more` : ''}`), copy),
        h('pre', { class: 'wgsl', tabindex: 0, role: 'region', 'aria-label': `WGSL of ${name}` }, highlighted(wgsl)));
    });
    return details;
  }));
}

/** @param {string} wgsl */
function highlighted(wgsl) {
  const code = h('code');
  let at = 0;
  for (const match of wgsl.matchAll(TOKENS)) {
    code.append(wgsl.slice(at, match.index));
    const kind = CLASSES[match.slice(1).findIndex((group) => group !== undefined)];
    code.append(h('span', { class: `wgsl-${kind}` }, match[0]));
    at = match.index + match[0].length;
  }
  code.append(wgsl.slice(at));
  return code;
}
