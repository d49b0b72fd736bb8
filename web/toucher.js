// @ts-check
/** The thread of memory.js: gets a size, sends back an ArrayBuffer of it that is in memory. */

import { touchPages } from './memory.js';

addEventListener('message', ({ data: nbytes }) => {
  const buffer = new ArrayBuffer(nbytes);
  touchPages(new Uint8Array(buffer), 0, nbytes);
  postMessage(buffer, { transfer: [buffer] });
});
