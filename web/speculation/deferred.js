// @ts-check
/** Work that waits until what is being answered has been sent, and no longer: a timer would wait for milliseconds. */

const channel = new MessageChannel();
/** @type {(() => void)[]} */
const waiting = [];
channel.port1.onmessage = () => waiting.shift()?.();

/** @param {() => void} work */
export function later(work) {
  waiting.push(work);
  channel.port2.postMessage(null);
}
