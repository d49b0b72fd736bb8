// @ts-check
import { h } from '../dom.js';

/**
 * What is wrong, in the visitor's words, and what to do next, by the error's name.
 * @type {Record<string, {title: string, next: string}>}
 */
const EXPLANATIONS = {
  InvalidProtobuf: {
    title: 'This file is not an ONNX model.',
    next: 'Choose a file that ends in .onnx. If it came from a repository, make sure it is the file itself and not a '
      + 'page about it or a Git LFS pointer.',
  },
  InvalidGraph: {
    title: 'The model is not valid ONNX.',
    next: 'Check it with onnx.checker.check_model, or export it again with a newer exporter.',
  },
  NotImplemented: {
    title: 'The model uses something that is not supported yet.',
    next: 'Export it for another opset or without that operator. In Python you can also supply the operator yourself.',
  },
  InvalidArgument: {
    title: 'The model does not accept this input.',
    next: 'Change the sizes of its inputs and run it again.',
  },
  NoSuchFile: {
    title: 'A file that the model needs is missing.',
    next: 'Drop the model and its external data files together.',
  },
  DeviceLost: {
    title: 'The GPU was taken away from this page.',
    next: 'Reload the page. If it happens again, close other pages that use the GPU.',
  },
  OutOfMemory: {
    title: 'The model needs more GPU memory than there is.',
    next: 'Use smaller inputs or a smaller model.',
  },
  NotFound: {
    title: 'There is no model at this address.',
    next: 'Check the address, or download the file and drop it here.',
  },
};
const OTHERWISE = {
  title: 'This did not work.',
  next: 'Try again; if it stays, reload the page.',
};

/**
 * An error for people: what is wrong, what the runtime said, what to do next.
 *
 * @param {unknown} thrown
 * @param {{title?: string, next?: string}} [context] words that fit better where it happened
 * @returns {HTMLElement}
 */
export function explain(thrown, context = {}) {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown));
  const explanation = { ...(EXPLANATIONS[kindOf(error)] ?? OTHERWISE), ...context };
  const { message, traceback } = withoutTraceback(error);
  return h('div', { class: 'error' },
    h('p', { class: 'error-title' }, explanation.title),
    h('p', { class: 'error-message' }, h('code', {}, error.name), ` ${message}`),
    h('p', { class: 'error-next' }, explanation.next),
    traceback ? h('details', {}, h('summary', {}, 'Traceback'), h('pre', { tabindex: 0 }, traceback)) : null);
}

/**
 * The message and the traceback; an unexpected error of Python's has both in its message.
 *
 * @param {Error & {traceback?: string}} error
 */
function withoutTraceback({ message, traceback }) {
  if (!message.startsWith('Traceback ')) return { message, traceback };
  const lines = message.trimEnd().split('\n');
  return { message: lines[lines.length - 1], traceback: message };
}

/** @param {Error} error */
function kindOf(error) {
  if (/HTTP status|Failed to fetch|NetworkError|Load failed/.test(error.message)) return 'NotFound';
  return error.name;
}

/** How the browser at hand is brought to offer a GPU: what it is called, and the way. */
const WAYS = /** @type {[RegExp, string][]} */ ([
  [/Firefox\//, 'In Firefox 141 or newer, set dom.webgpu.enabled, dom.webgpu.workers.enabled and, where the GPU is blocked, '
    + 'gfx.webgpu.ignore-blocklist to true in about:config, and update the graphics driver.'],
  [/Edg\//, 'See edge://gpu; on Linux, switch edge://flags/#enable-unsafe-webgpu on, and update the graphics driver.'],
  [/Chrome\//, 'See chrome://gpu; on Linux, start Chrome with --enable-unsafe-webgpu, and update the graphics driver.'],
  [/Safari\//, 'Update to Safari 26 or newer, or switch WebGPU on in its Feature Flags.'],
]);

/** Why there is no WebGPU here and how to get it; null where there is an adapter. @returns {Promise<string | null>} */
export async function whyNoWebGpu() {
  if (!window.isSecureContext) return 'WebGPU needs a secure page: open this one by https:// or on localhost.';
  if (await navigator.gpu?.requestAdapter()) return null;
  const way = WAYS.find(([name]) => name.test(navigator.userAgent))?.[1]
    ?? 'Chrome and Edge 113 or newer, Safari 26 and Firefox 141 have it.';
  return `${navigator.gpu ? 'The browser has WebGPU but offers no GPU.' : 'This browser has no WebGPU.'} ${way}`;
}
