// @ts-check
/** The five models, with fixed inputs. */
import { SITE } from '../../addresses.js';

/**
 * @typedef {object} Model
 * @property {string} name in results and in the page's address
 * @property {string} title
 * @property {string} about
 * @property {string} url
 * @property {string[]} fetches
 * @property {() => import('./engines.js').Inputs} inputs
 */

const TOKENS = 128;
const LAYERS = 5;

/** Return uniform numbers in [0, 1). @param {number[]} dims */
function floats(...dims) {
  const data = new Float32Array(dims.reduce((product, dim) => product * dim, 1));
  let state = 1;
  for (let i = 0; i < data.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    data[i] = state / 2 ** 32;
  }
  return { type: 'float32', data, dims };
}

/** @param {(i: number) => number} value */
function tokens(value) {
  return { type: 'int64', data: BigInt64Array.from({ length: TOKENS }, (_, i) => BigInt(value(i))), dims: [1, TOKENS] };
}

/** Return a prompt without preceding text. */
function prompt() {
  const caches = Array.from({ length: LAYERS }, (_, i) => ['key', 'value'].map((kind) => (
    [`past_key_values.${i}.${kind}`, { type: 'float32', data: new Float32Array(0), dims: [1, 2, 0, 64] }])));
  return { input_ids: tokens((i) => 5 + 7 * i), attention_mask: tokens(() => 1), ...Object.fromEntries(caches.flat()) };
}

const url = (/** @type {string} */ path) => new URL(path, SITE).href;

/** @type {Model[]} */
export const MODELS = [
  { name: 'digits', title: 'Digits', about: 'a small convolutional network, one picture of 16 by 16', url: url('models/digits.onnx'),
    fetches: ['probabilities'], inputs: () => ({ image: floats(1, 1, 16, 16) }) },
  { name: 'enlarge3', title: 'Super-resolution', about: 'a picture of 192 by 192 to 576 by 576', url: url('models/enlarge3.onnx'),
    fetches: ['enlarged'], inputs: () => ({ picture: floats(1, 3, 192, 192) }) },
  { name: 'shufflenet', title: 'ShuffleNet', about: 'one picture of 224 by 224', url: url('models/light/light_shufflenet.onnx'),
    fetches: ['gpu_0/softmax_1'], inputs: () => ({ 'gpu_0/data_0': floats(1, 3, 224, 224) }) },
  { name: 'resnet50', title: 'ResNet-50', about: 'one picture of 224 by 224', url: url('models/light/light_resnet50.onnx'),
    fetches: ['gpu_0/softmax_1'], inputs: () => ({ 'gpu_0/data_0': floats(1, 3, 224, 224) }) },
  { name: 'austen', title: 'Language model', about: `4 bits, a prompt of ${TOKENS} tokens`, url: url('models/austen/onnx/model_q4.onnx'),
    fetches: ['logits'], inputs: prompt },
];
