// @ts-check
/** Diagnose why Python does not start: a file is missing, or differs from that of the build. */

import { located, scriptName } from '../snapshot/memory.js';

/** Milliseconds without an answer after which a worker with valid files counts as stopped. */
const STOPPED_MS = 20_000;

/** Matches static imports of a module, and imports in a thread's own script at the start of a line or value. */
const IMPORTS = /(?:^|[;}\s])(?:import|export)\b[^;'"()]*?["']([./][^"']+)["']/gm;
const ON_DEMAND = /(?:^|= ?)import\(["']([./][^"']+)["']\)/gm;
const JAVASCRIPT = /^(text|application)\/(x-)?(java|ecma)script\b/i;
const COPY = 'copy it there from pyruntime\'s package or build, or set env.baseUrl to the address of a whole copy';

/** @typedef {{url: string, bytes: ArrayBuffer, fault: string}} File `fault`: the error and advice; '' for a valid file */

/** @param {string} path @returns {Promise<File>} */
async function read(path) {
  const url = located(path);
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
 * Read a thread's script and all modules that it imports.
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
 * Read the files that Pyodide loads.
 * @param {string} folder
 * @returns {Promise<File[]>}
 */
async function pyodide(folder) {
  const names = ['pyodide.mjs', scriptName(), 'pyodide-lock.json', 'pyodide.asm.wasm', 'python_stdlib.zip'];
  const files = await Promise.all(names.map((name) => read(folder + name)));
  const numpy = await Promise.resolve(new Response(files[2].bytes).json()).then(({ packages }) => packages.numpy.file_name, () => null);
  return [...files, ...numpy ? [await read(folder + numpy)] : []];
}

/**
 * Mark files that differ from the build's list.
 * @param {File[]} files
 * @param {string} site the site's folder
 */
async function compare(files, site) {
  const list = await fetch(`${site}integrity.json`).then((response) => response.json()).catch(() => ({}));
  for (const file of files) {
    const known = file.url.startsWith(site) ? list[file.url.slice(site.length)] : undefined;
    if (!known || !globalThis.crypto?.subtle) continue;
    const hash = new Uint8Array(await crypto.subtle.digest('SHA-384', file.bytes));
    if (`sha384-${btoa(String.fromCharCode(...hash))}` !== known) {
      file.fault = `is cut off or changed, its ${file.bytes.byteLength} bytes are not those of the build: ${COPY}`;
    }
  }
}

/**
 * Return address, error and advice of the first faulty file; '' if all are valid.
 * @param {File[]} files
 */
function firstFault(files) {
  const first = files.find(({ fault }) => fault);
  return first ? `${first.url} ${first.fault}` : '';
}

/**
 * Return the first faulty file that Python needs to start; '' if all are valid.
 * @param {import('./protocol.js').StartArguments} places
 */
export async function faultOfPython({ pyodideUrl, wheelUrl, siteUrl, moved }) {
  const files = [...await pyodide(pyodideUrl), await read(wheelUrl)];
  if (files.every(({ fault }) => !fault) && !Object.keys(moved).length) await compare(files, siteUrl);
  return firstFault(files);
}

/**
 * Return why a thread did not start: the fault of one of its files, else `message`.
 * @param {string} script the thread's script
 * @param {string | null} site the site's folder; null if another bundler has moved its files, whose addresses are then unknown
 * @param {string} message
 */
export async function reasonOf(script, site, message) {
  if (site === null) return message;
  const files = await modules(script).catch(() => []);
  if (files.every(({ fault }) => !fault)) await compare(files, site);
  const fault = firstFault(files);
  return fault ? `pyruntime does not start: ${fault}` : message;
}

/**
 * Return why a worker does not answer: the fault of one of its files, else, after a while, that it was stopped; '' if unknown.
 * @param {string} script see `reasonOf`
 * @param {string | null} site see `reasonOf`
 */
export async function faultOfSilent(script, site) {
  const fault = await reasonOf(script, site, '');
  if (fault || site === null) return fault;
  await new Promise((resolve) => { setTimeout(resolve, STOPPED_MS); });
  return "pyruntime's worker does not begin, though its files are right: the browser has stopped it, as Firefox (153) may do with a worker "
    + 'that another worker makes. Load the page again, or set env.worker = false before the first session, so that Python runs in this thread';
}
