// @ts-check
/**
 * The caches of a decoding loop (decoding.js). The last tokens may be rolled back: caches with reserved rows are truncated in place at the
 * end; of other caches, the tensors before unconfirmed tokens are kept until those are confirmed.
 */

/**
 * @typedef {import('../api/protocol.js').DecodeArguments} DecodeArguments
 * @typedef {import('../api/protocol.js').WireTensor} WireTensor
 * @typedef {import('./tensors.js').Remote} Remote
 * @typedef {import('./tensors.js').Tensors} Tensors
 */

export class TextCaches {
  #tensors;
  #named;
  /** The next value of each cache's input. @type {Map<string, Remote | WireTensor>} */
  #caches = new Map();
  /** Caches without reserved rows, by number of tokens, for tokens that may be rolled back. @type {Map<number, Map<string, Remote | WireTensor>>} */
  #before = new Map();

  /**
   * @param {Tensors} tensors
   * @param {DecodeArguments['caches']} caches
   * @param {number} length tokens in them
   */
  constructor(tensors, caches, length) {
    this.#tensors = tensors;
    this.#named = caches;
    this.length = length;
    for (const { input, given } of caches) this.#caches.set(input, this.#own(given));
  }

  /** Adopt a value of the caller. A GPU tensor is shared, so that the caller may dispose of it. @param {any} given */
  #own(given) {
    if (given.kind !== 'gpu') return given;
    const remote = this.#tensors.get(given.gpu);
    if (!remote) throw new Error('a cache on the GPU is disposed already');
    return this.#tensors.made(remote.type, remote.dims, remote.memory);
  }

  /** The next inputs, by name. @returns {Record<string, Remote | WireTensor>} */
  get next() {
    return Object.fromEntries(this.#caches);
  }

  /** Whether all caches are in memory with reserved rows. */
  get grow() {
    return [...this.#caches.values()].every((cache) => 'memory' in cache && Boolean(cache.memory.reserved));
  }

  /** Replace the caches by those with one more token. @param {Map<string, Remote>} made by output name */
  advance(made) {
    /** @type {Map<string, Remote | WireTensor>} */
    const kept = new Map();
    for (const { input, output } of this.#named) {
      const [old, now] = [/** @type {Remote | WireTensor} */ (this.#caches.get(input)), /** @type {Remote} */ (made.get(output))];
      if (!now.memory.reserved) kept.set(input, old);
      else if ('memory' in old) this.#tensors.dispose(old.number);
      this.#caches.set(input, now);
    }
    if (kept.size) this.#before.set(this.length, kept);
    this.length += 1;
  }

  /** Release tensors that only a rollback to fewer than `confirmed` tokens would need. @param {number} confirmed */
  confirm(confirmed) {
    for (const [length, caches] of this.#before) if (length < confirmed) this.#drop(length, caches);
  }

  /** Release the caches of an earlier token. @param {number} length @param {Map<string, Remote | WireTensor>} caches */
  #drop(length, caches) {
    for (const cache of caches.values()) if ('memory' in cache) this.#tensors.dispose(cache.number);
    this.#before.delete(length);
  }

  /** Return the tensors of the first `length` tokens, by input name; none if they are not all on the GPU. @param {number} length */
  cut(length) {
    /** @type {Record<string, any>} */
    const found = {};
    for (const [name, cache] of this.#caches) {
      if (!('memory' in cache)) return {};
      const { memory } = cache;
      /** @type {Remote | WireTensor | undefined} */
      let source = cache;
      let { dims } = cache;
      if (length < this.length && memory.reserved) {
        const { axis } = memory.reserved;
        dims = dims.map((dim, i) => (i === axis ? dim - (this.length - length) : dim));
      } else if (length < this.length) {
        source = this.#before.get(length)?.get(name);
        if (!source || !('memory' in source)) return {};
        ({ dims } = source);
      }
      found[name] = this.#tensors.wire(this.#tensors.made(source.type, dims, source.memory));
    }
    return found;
  }

  /** Release all caches. */
  dispose() {
    for (const cache of this.#caches.values()) if ('memory' in cache) this.#tensors.dispose(cache.number);
    for (const [length, caches] of this.#before) this.#drop(length, caches);
    this.#caches.clear();
  }
}
