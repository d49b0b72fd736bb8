// @ts-check
/**
 * Fix a stack leak of Pyodide (0.29.5 with JavaScript Promise Integration). Every call that may suspend takes a slot of 16 bytes on the C
 * stack for an exception, which is freed only by calls that raise. Each iteration of Python's event loop is such a call, so the stack of 5
 * MB overflows after some 320,000 iterations: Python then reads out of bounds and crashes, and its requests are never answered. Source:
 * https://github.com/pyodide/pyodide/issues/6249.
 */

/**
 * The members of Pyodide's module that concern the stack.
 * @typedef {object} Stack
 * @property {(...args: any[]) => Promise<unknown>} promisingApply the last argument is the slot, at the top of the stack
 * @property {() => number} stackSave
 * @property {(top: number) => void} stackRestore
 * @property {{prototype: {restore: (...args: any[]) => unknown}}} StackState the stack of a suspended call
 */

/** Size of a slot in bytes, with the stack's alignment. */
const PLACE = 16;

/**
 * Free the slots of calls that have returned. Must be called while no call is suspended.
 * @param {Stack} module
 */
export function fixStack(module) {
  const { promisingApply, stackSave, stackRestore, StackState } = module;
  if (!promisingApply || !stackSave || !stackRestore || !StackState?.prototype.restore) return;
  const base = stackSave();
  let [running, known, resumed] = [0, true, 0];
  /** Slots of returned calls that lie above the slot of a call in progress. @type {Set<number>} */
  const over = new Set();

  // A resumed call has the stack of its suspension point: slots below are gone, and may become its own frames.
  const { restore } = StackState.prototype;
  StackState.prototype.restore = function restored(/** @type {any[]} */ ...args) {
    resumed += 1;
    over.clear();
    return restore.apply(this, args);
  };

  /** @param {number} place @param {number} before number of resumed calls when this one began */
  const giveBack = (place, before) => {
    running -= 1;
    if (!known) return;
    if (!running) {
      over.clear();
      stackRestore(base);
    } else if (before === resumed) {
      over.add(place);
      for (const other of over) if (other < stackSave()) over.delete(other); // freed with a slot above it
      while (over.delete(stackSave())) stackRestore(stackSave() + PLACE);
    }
  };

  module.promisingApply = (...args) => {
    const place = stackSave();
    known &&= args[args.length - 1] === place; // else this is another version of Pyodide, which is left alone
    for (const other of over) if (other <= place) over.delete(other);
    const before = resumed;
    const made = promisingApply(...args);
    running += 1;
    // The caller awaits `made` and then reads its slot, before reactions to a promise derived from `made`.
    const ended = made.then(() => {}, () => {});
    ended.then(() => giveBack(place, before));
    return made;
  };
}
