// @ts-check
/** The worker that downloads files, so that the thread that wants them is free to plan meanwhile. Answers downloads.js. */

import { openFile } from './download.js';
import { rehearse } from './rehearsal.js';
import { speak } from '../thread.js';

/** @typedef {import('./download.js').Opened} Opened */

/** Milliseconds between two reports of one file's progress. */
const REPORTED_MS = 50;

/** @type {Map<number, {controller: AbortController, opened?: Opened}>} */
const files = new Map();

/** To who has this thread. @type {(answer: import('./downloads.js').Answer, transfer?: Transferable[]) => void} */
const post = speak(({ file, method, ...asked }) => methods[method](file, asked), () => post({ ready: true }));

/** @param {unknown} error */
function described(error) {
  const { name = 'Error', message = String(error) } = /** @type {any} */ (error ?? {});
  return { name, message };
}

/** Sends on what is said of a file. @param {number} file @returns {import('./download.js').Receiver} */
function receiver(file) {
  return {
    handed: (part) => post({ file, handed: part }),
    graph: (segments, isAhead) => post({ file, graph: { segments, isAhead } }),
    outline: (segments) => post({ file, outline: segments }),
    ended: (segments, agrees) => post({ file, ended: { segments, agrees } }),
    failed: (error) => post({ file, failed: described(error) }),
  };
}

/** @param {number} file @returns {import('./download.js').OnProgress} */
function progress(file) {
  let last = -Infinity;
  return (loaded, total) => {
    const now = performance.now();
    if (now - last < REPORTED_MS && loaded !== total) return;
    last = now;
    post({ file, progress: { loaded, total } });
  };
}

/** @type {Record<string, (file: number, asked: any) => Promise<void> | void>} */
const methods = {
  async open(file, { url, isModel }) {
    const controller = new AbortController();
    files.set(file, { controller });
    try {
      const opened = await openFile(url, isModel, controller.signal);
      files.set(file, { controller, opened });
      const { size, isExact, tag } = opened;
      post({ file, opened: { size, isExact, tag } });
    } catch (error) {
      post({ file, failed: described(error) });
    }
  },

  /** The last bytes are told of together with the end, so that nobody goes on between the two. */
  pieces(file) {
    const opened = files.get(file)?.opened;
    let left = opened?.size ?? Infinity;
    /** @type {Uint8Array<ArrayBuffer>[]} */
    const last = [];
    const buffers = (/** @type {Uint8Array<ArrayBuffer>[]} */ chunks) => chunks.map(({ buffer }) => buffer);
    opened?.pieces({
      ...receiver(file),
      came: (...chunks) => {
        for (const { length } of chunks) left -= length;
        if (left > 0) post({ file, came: chunks }, buffers(chunks));
        else last.push(...chunks);
      },
      ended: (segments, agrees) => post({ file, came: last, ended: { segments, agrees } }, buffers(last)),
    }, progress(file));
  },

  into(file) {
    files.get(file)?.opened?.into(receiver(file), progress(file));
  },

  async ahead(file, { wanted }) {
    post({ file, ahead: await files.get(file)?.opened?.ahead(wanted) ?? null });
  },

  async vouch(file) {
    post({ file, isVouchedFor: await files.get(file)?.opened?.isVouchedFor() ?? false });
  },

  /** Until there is a file. */
  rehearse() {
    if (!files.size) rehearse();
  },

  stop(file) {
    files.get(file)?.controller.abort();
    files.delete(file);
  },
};
