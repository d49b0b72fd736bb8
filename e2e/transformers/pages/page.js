// `run(name, options)` is what a case returns, with the library and the runtime that the page has.
import { cases, plain } from './cases.js';
import { matching } from './matching.js';

const { library = '@huggingface/transformers', symbol, wasm } = document.currentScript?.dataset ?? document.querySelector('[data-page]').dataset;

if (symbol) await import(symbol);
const runtime = symbol || !wasm ? null : await import('onnxruntime-web/webgpu');
if (runtime) runtime.env.wasm.wasmPaths = { wasm: new URL(wasm, document.baseURI).href };
const t = await import(library);
t.env.allowRemoteModels = false;
t.env.allowLocalModels = true;
t.env.localModelPath = '/models/';
t.env.useBrowserCache = false;

/** What cases have loaded since `disposeAll`. */
const loaded = [];
const noted = (load) => async (...args) => {
  const made = await load(...args);
  if (made.dispose) loaded.push(made);
  return made;
};

/** The library, unchanged: what `pipeline` and a class's `from_pretrained` give to a case is also noted in `loaded`. */
const observed = new Proxy({}, {
  get(_, name) {
    const value = t[name];
    if (name === 'pipeline') return noted(value);
    if (typeof value !== 'function' || !value.from_pretrained) return value;
    return new Proxy(value, {
      get: (kind, key) => (key === 'from_pretrained' ? noted((...args) => kind.from_pretrained(...args)) : Reflect.get(kind, key)),
    });
  },
});

globalThis.library = t;
globalThis.run = async (name, options) => plain(await { ...cases, ...matching }[name](observed, options));

/** Dispose of all that the cases have loaded, as an application does that is done with it. */
globalThis.disposeAll = async () => {
  await Promise.all(loaded.splice(0).map((made) => made.dispose()));
};
globalThis.ready = true;
