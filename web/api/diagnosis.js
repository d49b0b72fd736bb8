// @ts-check
/** Diagnose why Python does not start: which of its files is missing, or differs from what the build has made. */

import { SITE, isInPlace } from '../addresses.js';

/** Milliseconds that a worker may say nothing after its files were found to be right. */
const STOPPED_MS = 20_000;

/** Static imports, what a module does not start without; and those of a thread's own script that begin a line or a value. */
const IMPORTS = /(?:^|[;}\s])(?:import|export)\b[^;'"()]*?["']([./][^"']+)["']/gm;
const ON_DEMAND = /(?:^|= ?)import\(["']([./][^"']+)["']\)/gm;
const JAVASCRIPT = /^(text|application)\/(x-)?(java|ecma)script\b/i;
const COPY = 'copy it there from pyruntime\'s package or build';

/** @typedef {{url: string, bytes: ArrayBuffer, fault: string}} File `fault`: what is wrong with it, and what to do; '' where nothing is */

/** @param {string} url @returns {Promise<File>} */
async function read(url) {
  const file = (/** @type {string} */ fault, bytes = new ArrayBuffer(0)) => ({ url, bytes, fault });
  let response;
  try {
    response = await fetch(url);
  } catch (error) {
    return file(`cannot be fetched (${/** @type {Error} */ (error).message}): see that its server answers, and that the page's `
      + 'Content-Security-Policy and the server\'s CORS headers allow it');
  }
  const type = response.headers.get('Content-Type') ?? '';
  if (!response.ok) return file(`cannot be fetched (HTTP status ${response.status}): ${COPY}`);
  if (/^text\/html\b/i.test(type)) return file(`is a page of HTML, as servers of apps send for what they do not have: ${COPY}`);
  if (/\.m?js$/.test(new URL(url).pathname) && !JAVASCRIPT.test(type)) {
    return file(`is sent as '${type}', and browsers take modules as text/javascript only: set that type in the server`);
  }
  return response.arrayBuffer().then((bytes) => file('', bytes), () => (
    file('breaks off, the connection ends before all of it has come: load the page again, or see why its server ends it')));
}

/**
 * A thread's script, and all that it imports.
 * @param {string} script
 * @returns {Promise<File[]>}
 */
async function modules(script) {
  const seen = new Set();
  /** @type {File[]} */
  const files = [];
  const visit = async (/** @type {string} */ url) => {
    if (seen.has(url)) return;
    seen.add(url);
    const file = await read(url);
    files.push(file);
    const text = new TextDecoder().decode(file.bytes);
    const found = [...text.matchAll(IMPORTS), ...url === script ? text.matchAll(ON_DEMAND) : []];
    await Promise.all(found.map(([, path]) => visit(new URL(path, url).href)));
  };
  await visit(script);
  return files;
}

/**
 * What Pyodide loads, from the first folder that has its module.
 * @param {string[]} folders
 * @returns {Promise<File[]>}
 */
async function pyodide(folders) {
  const [module, ...others] = await Promise.all(folders.map((folder) => read(`${folder}pyodide.mjs`)));
  const place = module.fault ? others.findIndex(({ fault }) => !fault) + 1 : 0;
  if (module.fault && !place) return [module];
  const folder = folders[place];
  const names = ['pyodide.asm.js', 'pyodide-lock.json', 'pyodide.asm.wasm', 'python_stdlib.zip'];
  const files = await Promise.all(names.map((name) => read(folder + name)));
  const numpy = await Promise.resolve(new Response(files[1].bytes).json()).then(({ packages }) => packages.numpy.file_name, () => null);
  return [...place ? [] : [module], ...files, ...numpy ? [await read(folder + numpy)] : []];
}

/**
 * Mark the files that are others than the build's list has.
 * @param {File[]} files
 */
async function compare(files) {
  const list = await fetch(`${SITE}integrity.json`).then((response) => response.json()).catch(() => ({}));
  for (const file of files) {
    const known = file.url.startsWith(SITE) ? list[file.url.slice(SITE.length)] : undefined;
    if (!known || !globalThis.crypto?.subtle) continue;
    const hash = new Uint8Array(await crypto.subtle.digest('SHA-384', file.bytes));
    if (`sha384-${btoa(String.fromCharCode(...hash))}` !== known) {
      file.fault = `is cut off or changed, its ${file.bytes.byteLength} bytes are not those of the build: ${COPY}`;
    }
  }
}

/**
 * The first of some files that keeps Python from starting: its address, what is wrong with it and what to do; '' where all are right.
 * @param {{script?: string, places?: import('./protocol.js').StartArguments}} what a thread's script; what Python is started from
 */
export async function faultOf({ script, places }) {
  const found = await Promise.all([
    ...script ? [modules(script)] : [], ...places ? [pyodide(places.pyodideUrls), read(places.wheelUrl).then((file) => [file])] : []]);
  const files = found.flat();
  if (files.every(({ fault }) => !fault)) await compare(files);
  const first = files.find(({ fault }) => fault);
  return first ? `${first.url} ${first.fault}` : '';
}

/**
 * Why a thread has not started: what is wrong with one of its files, else `message`. The files of another bundler's output are unknown.
 * @param {string} script that the thread begins with
 * @param {string} message
 */
export async function reasonOf(script, message) {
  if (!isInPlace) return message;
  const fault = await faultOf({ script }).catch(() => '');
  return fault ? `pyruntime does not start: ${fault}` : message;
}

/**
 * Why a worker does not answer: what is wrong with one of its files, else that it was stopped, which is reported after a while; '' where
 * neither is known.
 * @param {string} script as for `reasonOf`
 */
export async function faultOfSilent(script) {
  const fault = await reasonOf(script, '');
  if (fault || !isInPlace) return fault;
  await new Promise((resolve) => { setTimeout(resolve, STOPPED_MS); });
  return "pyruntime's worker does not begin, though its files are right: the browser has stopped it, as Firefox (153) may do with a worker "
    + 'that another worker makes. Load the page again, or set env.worker = false before the first session, so that Python runs in this thread';
}
