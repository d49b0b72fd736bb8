// @ts-check
/**
 * Threads that work for this one; what they run speaks by thread.js. Python's worker asks its page for them: Firefox (153) stops a
 * worker that makes a worker, about once in a hundred times for ever.
 */

/** @typedef {'downloads'} Name */
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
};

/**
 * Firefox (153) sends what goes through a MessagePort to its main process and back: 90 MB take 0.3 to 0.4 s, half of that in the
 * thread that sends. What a worker and its maker say to each other it does not copy (3 ms), so the page passes it on.
 */
const portsCopy = /Firefox\//.test(globalThis.navigator?.userAgent ?? '');

/** Asks the page; null: threads are made here. @type {Ask | null} */
let ask = null;

/** Who hears the answers, by the number of the thread. @type {Map<number, {hear: Hear, failed: Failed}>} */
const asked = new Map();

let last = 0;

/** In a worker whose page makes its threads (port.js). @param {Ask} how */
export function askPage(how) {
  ask = how;
}

/** An answer of the page, or of this thread where it makes its own. @param {Answered} answer */
export function answered(answer) {
  const who = asked.get(answer.thread);
  if ('message' in answer) who?.hear(answer.message);
  else {
    asked.delete(answer.thread);
    who?.failed(answer.failed);
  }
}

/** Makes threads: those of this thread, or in a page those of Python's worker. */
export class Threads {
  /** A worker that nobody holds may be ended by the garbage collector. @type {Map<number, Worker>} */
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
    const failed = (/** @type {string} */ message) => this.#answer({ thread, failed: message }, []);
    try {
      const worker = MAKERS[name]();
      this.#made.set(thread, worker);
      worker.addEventListener('message', ({ data: { message, transfer } }) => this.#answer({ thread, message }, transfer));
      worker.addEventListener('error', (event) => {
        event.preventDefault(); // else it is an error of this thread, too
        failed(event.message || 'its worker failed');
      });
      worker.postMessage(port ?? null, port ? [port] : []);
    } catch (error) { // another origin's, or forbidden by a policy
      failed(/** @type {Error} */ (error).message);
    }
  }

  /** End all. */
  end() {
    for (const worker of this.#made.values()) worker.terminate();
    this.#made.clear();
  }
}

const own = new Threads(answered);

/**
 * Make a thread; null where there can be none.
 * @param {Name} name
 * @param {Hear} hear
 * @param {Failed} failed
 * @returns {Thread | null}
 */
export function openThread(name, hear, failed) {
  last += 1;
  const thread = last;
  /** @type {Ask} */
  const tell = ask ?? ((said) => own.hear(said));
  const { port1, port2 } = ask && !portsCopy ? new MessageChannel() : { port1: null, port2: null };
  asked.set(thread, { hear, failed });
  if (port2) tell({ thread, name, port: port2 }, [port2]);
  else tell({ thread, name }, []);
  if (!asked.has(thread)) return null;
  if (port1) port1.onmessage = ({ data: { message } }) => answered({ thread, message });
  return {
    post: (message, transfer = []) => {
      if (port1) port1.postMessage({ message, transfer }, transfer);
      else tell({ thread, message, transfer }, transfer);
    },
    end: () => {
      asked.delete(thread);
      port1?.close();
      tell({ thread, ends: true }, []);
    },
  };
}
