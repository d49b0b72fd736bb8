// @ts-check
/** The thread of memory.js: gets a size, sends back an ArrayBuffer of it that is in memory; null ends it. */

import { touchPages } from './memory.js';

addEventListener('message', ({ data: port }) => {
  port.onmessage = (/** @type {MessageEvent<number | null>} */ { data: nbytes }) => {
    if (nbytes === null) {
      close();
      return;
    }
    const buffer = new ArrayBuffer(nbytes);
    touchPages(new Uint8Array(buffer), 0, nbytes);
    port.postMessage(buffer, [buffer]);
  };
}, { once: true });
