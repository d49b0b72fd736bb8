// @ts-check
/** The thread of memory.js: gets a size, sends back an ArrayBuffer of it that is in memory. */

const PAGE = 4096;

addEventListener('message', ({ data: nbytes }) => {
  const buffer = new ArrayBuffer(nbytes);
  const bytes = new Uint8Array(buffer);
  for (let place = 0; place < nbytes; place += PAGE) bytes[place] = 0;
  postMessage(buffer, { transfer: [buffer] });
});
