// @ts-check
import { SITE, WEB } from '../../addresses.js';
import { places } from '../../api/env.js';
import { byId, copyButton, h } from '../dom.js';

const MODEL = new URL('models/digits.onnx', SITE).href;

const SNIPPETS = [
  {
    title: 'In a notebook',
    about: 'JupyterLite, marimo, any page with Pyodide. Python calls, NumPy arrays, the GPU.',
    code: `import micropip, numpy as np
await micropip.install("${places().wheelUrl}")
import pyruntime as ort

session = await ort.InferenceSession.create("${MODEL}")
image = np.zeros((1, 1, 16, 16), np.float32)
probabilities, = await session.run_async(None, {"image": image})`,
  },
  {
    title: 'As an element',
    about: 'One script tag and one element in any page: to draw on, for pictures, or for numbers.',
    code: `<script type="module" src="${WEB}widget.js"></script>
<pyruntime-model src="${MODEL}" input="draw" labels="0,1,2,3,4,5,6,7,8,9"></pyruntime-model>`,
  },
  {
    title: 'In a web page',
    about: 'An ES module. Python starts in a worker of its own, so the page stays responsive.',
    code: `<script type="module">
  import { InferenceSession, Tensor } from "${WEB}pyruntime.js";

  const session = await InferenceSession.create("${MODEL}");
  const image = new Tensor("float32", new Float32Array(256), [1, 1, 16, 16]);
  const { probabilities } = await session.run({ image });
</script>`,
  },
  {
    title: 'In Python on a desktop',
    about: 'The same code without a browser: on the GPU with the package wgpu installed, otherwise on NumPy.',
    code: `# pip install ${places().wheelUrl}
import numpy as np
import pyruntime as ort

session = ort.InferenceSession("digits.onnx")
image = np.zeros((1, 1, 16, 16), np.float32)
probabilities, = session.run(None, {"image": image})`,
  },
];

/** Show four code snippets with this site's addresses. */
export function showSnippets() {
  byId('snippets').append(...SNIPPETS.map(({ title, about, code }) => h('section', { class: 'snippet' },
    h('div', { class: 'snippet-head' }, h('h3', {}, title), copyButton(code, 'Copy', `Copy: ${title}`)),
    h('p', {}, about),
    h('pre', { tabindex: 0, role: 'region', 'aria-label': `Code: ${title}` }, h('code', {}, code)))));
}
