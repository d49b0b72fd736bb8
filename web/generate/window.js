// @ts-check
/**
 * What a model sees of a text that is longer than its window; the rule and its reasons are in pyruntime/generate/windows.py:
 *
 *   dropped(L) = D · ceil(max(0, L - size) / D),  D = max(1, floor((size - sinks) / 2))
 *   context(ids) = ids[..sinks] + ids[sinks + dropped(ids.length)..]
 */

const SINKS = 4;

export class Window {
  /** @param {number} size tokens at most; Infinity: everything is seen @param {number} sinks of them the text's first ones, which stay */
  constructor(size, sinks) {
    this.size = size;
    this.sinks = sinks;
    this.block = Math.max(1, Math.floor((size - sinks) / 2));
  }

  /** How many tokens behind the sinks a text of this length has lost. @param {number} length */
  dropped(length) {
    return length <= this.size ? 0 : this.block * Math.ceil((length - this.size) / this.block);
  }

  /** How many tokens may follow a text of this length before a block is dropped. @param {number} length */
  room(length) {
    return this.size + this.dropped(length) - length;
  }

  /** The ids that the model sees of a text that has lost so many. @param {readonly number[]} ids */
  context(ids, lost = this.dropped(ids.length)) {
    return [...ids.slice(0, this.sinks), ...ids.slice(this.sinks + lost)];
  }
}

/**
 * @param {{window?: number, sinks?: number}} options
 * @param {number} contextLength of the model
 */
export function windowOf({ window, sinks = SINKS }, contextLength) {
  if (window === undefined) return new Window(Infinity, 0);
  if (!Number.isInteger(sinks) || sinks < 0) throw new RangeError(`sinks must be a whole number of tokens, not ${sinks}`);
  if (!Number.isInteger(window) || window <= sinks || window > contextLength) {
    throw new RangeError(`window must be a whole number above sinks (${sinks}) and up to the model's context (${contextLength}), not ${window}`);
  }
  return new Window(window, sinks);
}
