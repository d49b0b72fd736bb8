// @ts-check
/** In a thread that threads.js makes: what it says and hears, by the MessagePort that it is sent first, or by itself if that is null. */

/**
 * Hear what is said to this thread.
 * @param {(message: any) => void} hear
 * @param {() => void} [begun] hears that something can be said
 * @returns {(message: any, transfer?: Transferable[]) => void} says something
 */
export function speak(hear, begun) {
  /** @type {Pick<MessagePort, 'postMessage' | 'onmessage'>} */
  let line;
  self.addEventListener('message', ({ data: port }) => {
    line = port ?? self;
    line.onmessage = (/** @type {MessageEvent<import('./threads.js').Said>} */ { data: { message } }) => hear(message);
    begun?.();
  }, { once: true });
  return (message, transfer = []) => line.postMessage({ message, transfer }, transfer);
}
