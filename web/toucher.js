// @ts-check
/** The thread of memory.js: gets a size, sends back an ArrayBuffer of it that is in memory. */

import { touchPages } from './memory.js';
import { speak } from './thread.js';

const post = speak((/** @type {number} */ nbytes) => {
  const buffer = new ArrayBuffer(nbytes);
  touchPages(new Uint8Array(buffer), 0, nbytes);
  post(buffer, [buffer]);
});
