// @ts-check
/**
 * Fix a stack leak of Pyodide (0.29.5 with JavaScript Promise Integration). Every call that may wait for a promise takes 16 bytes of
 * the C stack: a slot for an exception, which calls that raise give back and no others. Each turn of Python's event loop is such a
 * call, so the stack of 5 MB overflows after some 320,000 turns: Python then reads out of bounds and crashes, and its requests are
 * never answered. Source: https://github.com/pyodide/pyodide/issues/6249.
 */

/**
 * What Pyodide's module has of it.
 * @typedef {object} Stack
 * @property {(...args: any[]) => Promise<unknown>} promisingApply the last argument is the place, the top of the stack
 * @property {() => number} stackSave
 * @property {(top: number) => void} stackRestore
 * @property {{prototype: {restore: (...args: any[]) => unknown}}} StackState what a call that waits has of the stack
 */

/** Bytes of a place: the stack is aligned. */
const PLACE = 16;

/**
 * Have places given back when their calls are over. To be called while no call waits.
 * @param {Stack} module
 */
export function fixStack(module) {
  const { promisingApply, stackSave, stackRestore, StackState } = module;
  if (!promisingApply || !stackSave || !stackRestore || !StackState?.prototype.restore) return;
  const base = stackSave();
  let [running, known, resumed] = [0, true, 0];
  /** Places of calls that are over, while a call below them is not. @type {Set<number>} */
  const over = new Set();

  // A call that goes on has the stack from where it waited: places below are gone, and may be its own frames soon.
  const { restore } = StackState.prototype;
  StackState.prototype.restore = function restored(/** @type {any[]} */ ...args) {
    resumed += 1;
    over.clear();
    return restore.apply(this, args);
  };

  /** @param {number} place @param {number} before how many calls had gone on when this one began */
  const giveBack = (place, before) => {
    running -= 1;
    if (!known) return;
    if (!running) {
      over.clear();
      stackRestore(base);
    } else if (before === resumed) {
      over.add(place);
      for (const other of over) if (other < stackSave()) over.delete(other); // given back with one above it
      while (over.delete(stackSave())) stackRestore(stackSave() + PLACE);
    }
  };

  module.promisingApply = (...args) => {
    const place = stackSave();
    known &&= args[args.length - 1] === place; // else it is another Pyodide, and its stack is left alone
    for (const other of over) if (other <= place) over.delete(other);
    const before = resumed;
    const made = promisingApply(...args);
    running += 1;
    // The caller awaits `made`, and then reads its slot: before what follows on a promise that follows on `made`.
    const ended = made.then(() => {}, () => {});
    ended.then(() => giveBack(place, before));
    return made;
  };
}
