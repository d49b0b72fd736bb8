// @ts-check
/** The worker that downloads files while the requesting thread plans. Answers downloads.js. */

import { openFile } from './loading/download.js';

/** Milliseconds between two reports of one file's progress. */
const REPORTED_MS = 50;

/** A lower bound of the page size in bytes. */
const PAGE = 4096;

/** @type {Map<number, {controller: AbortController, opened?: import('./loading/download.js').Opened}>} */
const files = new Map();

/** @type {MessagePort} */
let port;

/** Send a message about a file. @param {number} file @param {string} what @param {unknown[]} args @param {Transferable[]} [transfer] */
const tell = (file, what, args, transfer = []) => port.postMessage([file, what, ...args], transfer);

/** @param {number} file @param {unknown} error */
function fail(file, error) {
  const { name = 'Error', message = String(error), isChanged } = /** @type {any} */ (error ?? {});
  tell(file, 'failed', [{ name, message, isChanged }]);
}

/** Return a receiver that forwards a file's messages. @param {number} file @returns {import('./loading/download.js').Receiver} */
function receiver(file) {
  let last = -Infinity;
  return {
    progress(loaded, total) {
      const now = performance.now();
      if (now - last < REPORTED_MS && loaded !== total) return;
      last = now;
      tell(file, 'progress', [loaded, total]);
    },
    came: (chunk) => tell(file, 'came', [chunk], [chunk.buffer]),
    handed: (part) => tell(file, 'handed', [part]),
    graph: (...told) => tell(file, 'graph', told),
    ended: (...told) => tell(file, 'ended', told),
    failed: (error) => fail(file, error),
  };
}

/** @type {Record<string, (file: number, ...args: any[]) => Promise<void> | void>} */
const methods = {
  async open(file, url, isModel, cache) {
    const controller = new AbortController();
    files.set(file, { controller });
    try {
      const opened = await openFile(url, isModel, controller.signal, cache);
      files.set(file, { controller, opened });
      const { size, isExact, tag, validator } = opened;
      tell(file, 'opened', [{ size, isExact, tag, validator }]);
    } catch (error) {
      fail(file, error);
    }
  },

  pieces: (file) => files.get(file)?.opened?.pieces(receiver(file)),

  into: (file) => files.get(file)?.opened?.into(receiver(file)),

  async ahead(file, wanted) {
    tell(file, 'ahead', [await files.get(file)?.opened?.ahead(wanted) ?? null]);
  },

  /** Write to each page, so that the system allocates and clears it. */
  memory(_, nbytes) {
    const bytes = new Uint8Array(nbytes);
    for (let at = 0; at < nbytes; at += PAGE) bytes[at] = 0;
    tell(0, 'memory', [bytes.buffer], [bytes.buffer]);
  },

  stop(file) {
    files.get(file)?.controller.abort();
    files.delete(file);
  },
};

self.addEventListener('message', ({ data }) => {
  port = data;
  port.onmessage = ({ data: [file, method, ...args] }) => methods[method](file, ...args);
  tell(0, 'ready', []);
}, { once: true });
