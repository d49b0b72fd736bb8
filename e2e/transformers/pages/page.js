// `run(name, options)` is what a case returns, with the library and the runtime that the page has.
import { cases, plain } from './cases.js';

const { library = '@huggingface/transformers', symbol, wasm } = document.currentScript?.dataset ?? document.querySelector('[data-page]').dataset;

if (symbol) await import(symbol);
const runtime = symbol || !wasm ? null : await import('onnxruntime-web/webgpu');
if (runtime) runtime.env.wasm.wasmPaths = { wasm: new URL(wasm, document.baseURI).href };
const t = await import(library);
t.env.allowRemoteModels = false;
t.env.allowLocalModels = true;
t.env.localModelPath = '/models/';
t.env.useBrowserCache = false;

globalThis.library = t;
globalThis.run = async (name, options) => plain(await cases[name](t, options));
globalThis.ready = true;
