// @ts-check
/** Defer work until the current message was handled. A timer would wait for milliseconds. */

const channel = new MessageChannel();
/** @type {(() => void)[]} */
const waiting = [];
channel.port1.onmessage = () => waiting.shift()?.();

/** @param {() => void} work */
export function later(work) {
  waiting.push(work);
  channel.port2.postMessage(null);
}
