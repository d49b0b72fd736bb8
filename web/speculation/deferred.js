// @ts-check
/** Defer work until the current message has been handled. A timer would take milliseconds. */

const channel = new MessageChannel();
/** @type {(() => void)[]} */
const waiting = [];
channel.port1.onmessage = () => waiting.shift()?.();

/** @param {() => void} work */
export function later(work) {
  waiting.push(work);
  channel.port2.postMessage(null);
}
