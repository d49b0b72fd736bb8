// @ts-check
/**
 * Threads that work for this one, each at the other end of a MessagePort. Python's worker asks its page for them: Firefox (153)
 * stops a worker that makes a worker, about once in a hundred times for ever.
 */

/** @typedef {'downloads' | 'memory'} Name */
/** @typedef {(message: string) => void} Failed hears why there is no such thread, or no longer */
/** @typedef {(name: Name, port: MessagePort) => void} Ask */

/** @type {Record<Name, () => Worker>} */
const MAKERS = {
  downloads: () => new Worker(new URL('./loading/downloader.js', import.meta.url), { type: 'module', name: 'pyruntime downloads' }),
  memory: () => new Worker(new URL('./toucher.js', import.meta.url), { type: 'module', name: 'pyruntime memory' }),
};

/** Asks a page, which answers with `threadFailed`; null: threads are made here. @type {Ask | null} */
let ask = null;

/** @type {Map<Name, Failed>} */
const asked = new Map();

/** Those made here: a worker that nobody holds may be ended by the garbage collector. @type {Map<Name, Worker>} */
const made = new Map();

/** In a worker whose page makes its threads (port.js). @param {Ask} how */
export function askPage(how) {
  ask = how;
}

/** The page says that a thread it was asked for has failed. @param {Name} name @param {string} message */
export function threadFailed(name, message) {
  asked.get(name)?.(message);
}

/**
 * Make a thread, whose first message is `port`.
 * @param {Name} name
 * @param {MessagePort} port
 * @param {Failed} failed
 * @returns {boolean} false: there can be none
 */
export function makeThread(name, port, failed) {
  try {
    const worker = MAKERS[name]();
    made.set(name, worker);
    worker.addEventListener('error', (event) => {
      event.preventDefault(); // else it is an error of this thread, too
      failed(event.message || 'its worker failed');
    });
    worker.postMessage(port, [port]);
    return true;
  } catch (error) { // another origin's, or forbidden by a policy
    failed(/** @type {Error} */ (error).message);
    return false;
  }
}

/** End the threads that were made here. */
export function endThreads() {
  for (const worker of made.values()) worker.terminate();
  made.clear();
}

/**
 * A port to a thread of its own; null where there can be none.
 * @param {Name} name
 * @param {Failed} failed
 * @returns {MessagePort | null}
 */
export function openThread(name, failed) {
  const { port1, port2 } = new MessageChannel();
  if (ask) {
    asked.set(name, failed);
    ask(name, port2);
    return port1;
  }
  return makeThread(name, port2, failed) ? port1 : null;
}
