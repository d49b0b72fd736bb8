// @ts-check
/**
 * Commands of a recording that run several times: the body of a loop is recorded once (`pyruntime/compiler/repeated.py`).
 *
 * @typedef {[first: number, count: number, times: number, scaled: number]} Repeated `count` commands from `first` on run `times`
 *   times, or as often as the run's number `scaled` says, where that is not -1; those within others come after them
 */

/** Dispatches of a run, at most. */
const MOST = 1 << 20;

/** @type {WeakMap<object[], Repeated[]>} */
const known = new WeakMap();

/** `commands`, of which some run several times. @template {object[]} T @param {T} commands @param {Repeated[]} repeated @returns {T} */
export function repeat(commands, repeated) {
  if (repeated.length) known.set(commands, repeated);
  return commands;
}

/** Which of `commands` run several times. @param {object[]} commands @returns {Repeated[]} */
export function repeatedOf(commands) {
  return known.get(commands) ?? [];
}

/**
 * Return the indices of commands from `at` up to `end` in the order in which they run, those of loop bodies once per trip.
 * @param {number} at
 * @param {number} end
 * @param {Repeated[]} repeated
 * @param {number[]} numbers
 * @returns {number[]}
 */
function orderOf(at, end, repeated, numbers) {
  /** @type {number[]} */
  const order = [];
  let next = at;
  const upTo = (/** @type {number} */ stop) => { for (; next < stop; next += 1) order.push(next); };
  for (let i = 0; i < repeated.length;) {
    const [first, count, times, scaled] = repeated[i];
    const inner = repeated.slice(i + 1).filter((other) => other[0] < first + count);
    upTo(first);
    const body = orderOf(first, first + count, inner, numbers);
    const trips = scaled < 0 ? times : numbers[scaled];
    if (!(trips >= 0 && order.length + trips * body.length <= MOST)) throw new Error(`the plan is damaged: ${trips} trips of a loop`);
    for (let trip = 0; trip < trips; trip += 1) for (const number of body) order.push(number);
    next = first + count;
    i += 1 + inner.length;
  }
  upTo(end);
  return order;
}

/**
 * The commands of a run in their order.
 * @template T
 * @param {T[]} commands
 * @param {number[]} numbers of the run
 * @returns {T[]}
 */
export function ordered(commands, numbers) {
  const repeated = repeatedOf(/** @type {object[]} */ (commands));
  return repeated.length ? orderOf(0, commands.length, repeated, numbers).map((number) => commands[number]) : commands;
}
