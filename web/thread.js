// @ts-check
/** In a thread that threads.js makes: what it says and hears, by a MessagePort if that is the first thing it is sent. */

/**
 * Hear what is said to this thread.
 * @param {(message: any) => void} hear
 * @returns {(message: any, transfer?: Transferable[]) => void} says something
 */
export function speak(hear) {
  /** @type {Pick<MessagePort, 'postMessage'>} */
  let line = /** @type {any} */ (self);
  self.addEventListener('message', ({ data }) => {
    if (!(data instanceof MessagePort)) hear(data.message);
    else {
      data.onmessage = (/** @type {MessageEvent<import('./threads.js').Said>} */ event) => hear(event.data.message);
      line = data;
    }
  });
  return (message, transfer = []) => line.postMessage({ message, transfer }, transfer);
}
