// @ts-check
import { requestAdapter } from '../../gpu/adapter.js';
import { byId, h } from '../dom.js';

/**
 * What is wrong, in plain words, and what to do next, by the error's name.
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
 * Return an element that explains an error: what is wrong, the runtime's message, and what to do next.
 * @param {unknown} thrown
 * @param {{title?: string, next?: string}} [context] texts that fit the situation better
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
 * Return an address that a visitor typed if it is of this site; otherwise null, with an explanation in an element.
 * @param {string} named
 * @param {string} place the element's id
 * @param {string} next what to do
 */
export function ownAddress(named, place, next) {
  const url = URL.canParse(named, document.baseURI) ? new URL(named, document.baseURI) : null;
  if (url?.origin === window.location.origin) return url;
  byId(place).replaceChildren(explain(new RangeError(named), { title: 'This page fetches models only from its own site.', next }));
  return null;
}

/**
 * Split message and traceback; the message of an unexpected Python error has both.
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

/** Advice by user agent: if `navigator.gpu` is missing, and if it finds no adapter. */
const WAYS = /** @type {[RegExp, string, string][]} */ ([
  [/iPhone|iPad/, 'update to iOS 26 or newer',
    'switch WebGPU on in Settings, Apps, Safari, Advanced, Feature Flags, and load this page again'],
  [/Firefox\//, 'set dom.webgpu.enabled to true in about:config of Firefox 141 or newer, and load this page again',
    'set gfx.webgpu.ignore-blocklist to true in about:config, update the graphics driver, and restart Firefox'],
  [/Linux.*Edg\//, 'switch edge://flags/#enable-unsafe-webgpu on, and restart Edge',
    'switch graphics acceleration on in edge://settings/system and edge://flags/#enable-unsafe-webgpu on, and restart Edge'],
  [/Edg\//, 'update to Edge 113 or newer',
    'switch graphics acceleration on in edge://settings/system, update the graphics driver, and restart Edge'],
  [/Android.*Chrome\//, 'update to Chrome 121 or newer, on Android 12 or newer', 'switch chrome://flags/#enable-unsafe-webgpu on, and restart Chrome'],
  [/Linux.*Chrome\//, 'switch chrome://flags/#enable-unsafe-webgpu on, and restart Chrome',
    'switch graphics acceleration on in chrome://settings/system and chrome://flags/#enable-unsafe-webgpu on, and restart Chrome'],
  [/Chrome\//, 'update to Chrome 113 or newer',
    'switch graphics acceleration on in chrome://settings/system, update the graphics driver, and restart Chrome'],
  [/Linux.*Safari\//, 'use Chrome, Edge or Firefox 141 or newer', 'use Chrome, Edge or Firefox 141 or newer'],
  [/Safari\//, 'update to Safari 26 on macOS 26 or newer', 'switch WebGPU on in Safari\'s settings, Feature Flags, and load this page again'],
  [/^/, 'use Chrome, Edge, Firefox 141 or newer, or Safari 26', 'see what the browser\'s settings say of the GPU'],
]);

/** Return in one sentence why there is no WebGPU and how to enable it; null if there is an adapter. @returns {Promise<string | null>} */
export async function whyNoWebGpu() {
  if (!window.isSecureContext) return 'WebGPU needs a secure page: open this one by https:// or on localhost.';
  if (await requestAdapter()) return null;
  const [, missing, blocked] = /** @type {typeof WAYS[number]} */ (WAYS.find(([name]) => name.test(navigator.userAgent)));
  return navigator.gpu ? `WebGPU finds no GPU in this browser: ${blocked}.` : `This browser has no WebGPU, or it is switched off: ${missing}.`;
}
