// @ts-check
/**
 * Threads that work for this one; what they run speaks by thread.js. Python's worker asks its page for them: Firefox (153) stops a
 * worker that makes a worker, about once in a hundred times for ever.
 */

/** @typedef {'downloads' | 'memory'} Name */
/** @typedef {(message: any) => void} Hear hears what the thread says */
/** @typedef {(message: string) => void} Failed hears why there is no such thread, or no longer */

/**
 * What is said to a thread, or by it; who passes it on has to name what is transferred again.
 * @typedef {{message: any, transfer: Transferable[]}} Said
 *
 * What Python's worker asks of the page: to make a thread, which speaks through `port` where there is one, to pass on what is said
 * to it, to end it.
 * @typedef {{thread: number, name: Name, port?: MessagePort} | {thread: number} & Said | {thread: number, ends: true}} Asked
 *
 * And what the page answers.
 * @typedef {{thread: number, message: any} | {thread: number, failed: string}} Answered
 *
 * @typedef {(asked: Asked, transfer: Transferable[]) => void} Ask
 *
 * @typedef {object} Thread
 * @property {(message: any, transfer?: Transferable[]) => void} post
 * @property {() => void} end
 */

/** @type {Record<Name, () => Worker>} */
const MAKERS = {
  downloads: () => new Worker(new URL('./loading/downloader.js', import.meta.url), { type: 'module', name: 'pyruntime downloads' }),
  memory: () => new Worker(new URL('./toucher.js', import.meta.url), { type: 'module', name: 'pyruntime memory' }),
};

/**
 * Firefox (153) sends what goes through a MessagePort to its main process and back: 90 MB take 0.3 to 0.4 s, half of that in the
 * thread that sends. What a worker and its maker say to each other it does not copy (3 ms), so the page passes it on.
 */
const portsCopy = /Firefox\//.test(globalThis.navigator?.userAgent ?? '');

/** Asks the page; null: threads are made here. @type {Ask | null} */
let ask = null;

/** Who hears the page's answers, by the number of the thread. @type {Map<number, {hear: Hear, failed: Failed}>} */
const asked = new Map();

let last = 0;

/** Those made here: a worker that nobody holds may be ended by the garbage collector. @type {Set<Worker>} */
const made = new Set();

/** In a worker whose page makes its threads (port.js). @param {Ask} how */
export function askPage(how) {
  ask = how;
}

/** The page has answered. @param {Answered} answer */
export function pageAnswered(answer) {
  const who = asked.get(answer.thread);
  if ('failed' in answer) who?.failed(answer.failed);
  else who?.hear(answer.message);
}

/**
 * @param {Name} name
 * @param {(said: Said) => void} hear
 * @param {Failed} failed
 * @returns {Worker | null}
 */
function make(name, hear, failed) {
  try {
    const worker = MAKERS[name]();
    worker.addEventListener('message', ({ data }) => hear(data));
    worker.addEventListener('error', (event) => {
      event.preventDefault(); // else it is an error of this thread, too
      failed(event.message || 'its worker failed');
    });
    return worker;
  } catch (error) { // another origin's, or forbidden by a policy
    failed(/** @type {Error} */ (error).message);
    return null;
  }
}

/** The threads that a page makes for Python's worker. */
export class PageThreads {
  /** @type {Map<number, Worker>} */
  #made = new Map();
  #answer;

  /** @param {(answer: Answered, transfer: Transferable[]) => void} answer */
  constructor(answer) {
    this.#answer = answer;
  }

  /** @param {Asked} asked */
  hear(asked) {
    const { thread } = asked;
    if ('name' in asked) this.#make(thread, asked.name, asked.port);
    else if ('ends' in asked) {
      this.#made.get(thread)?.terminate();
      this.#made.delete(thread);
    } else this.#made.get(thread)?.postMessage({ message: asked.message, transfer: asked.transfer }, asked.transfer);
  }

  /** @param {number} thread @param {Name} name @param {MessagePort} [port] */
  #make(thread, name, port) {
    const worker = make(
      name,
      ({ message, transfer }) => this.#answer({ thread, message }, transfer),
      (failed) => this.#answer({ thread, failed }, []),
    );
    if (!worker) return;
    this.#made.set(thread, worker);
    if (port) worker.postMessage(port, [port]);
  }

  /** End all. */
  end() {
    for (const worker of this.#made.values()) worker.terminate();
    this.#made.clear();
  }
}

/**
 * Make a thread; null where there can be none.
 * @param {Name} name
 * @param {Hear} hear
 * @param {Failed} failed
 * @returns {Thread | null}
 */
export function openThread(name, hear, failed) {
  return ask ? askedThread(ask, name, hear, failed) : ownThread(name, hear, failed);
}

/** @type {typeof openThread} */
function ownThread(name, hear, failed) {
  const worker = make(name, ({ message }) => hear(message), failed);
  if (!worker) return null;
  made.add(worker);
  return {
    post: (message, transfer = []) => worker.postMessage({ message, transfer }, transfer),
    end: () => {
      worker.terminate();
      made.delete(worker);
    },
  };
}

/** @param {Ask} toPage @param {Name} name @param {Hear} hear @param {Failed} failed @returns {Thread} */
function askedThread(toPage, name, hear, failed) {
  last += 1;
  const thread = last;
  asked.set(thread, { hear, failed });
  /** @type {Thread['post']} */
  let post = (message, transfer = []) => toPage({ thread, message, transfer }, transfer);
  if (portsCopy) toPage({ thread, name }, []);
  else {
    const { port1, port2 } = new MessageChannel();
    toPage({ thread, name, port: port2 }, [port2]);
    port1.onmessage = ({ data }) => asked.get(thread)?.hear(data.message);
    post = (message, transfer = []) => port1.postMessage({ message, transfer }, transfer);
  }
  return {
    post,
    end: () => {
      asked.delete(thread);
      toPage({ thread, ends: true }, []);
    },
  };
}
