// @ts-check
/**
 * Trim the caches of models with local attention: rows that no later token attends to are released.
 *
 * pyruntime/generate/trimming.py explains for which models, and why results equal those with all rows. Rows are released in multiples of
 * `drop`, as soon as there are `kept` + `drop`; the remaining keys are rotated back by as many positions.
 */

/**
 * @typedef {object} Turn how an attention turns its keys
 * @property {string[]} caches of keys
 * @property {number[]} cos of its pairs' angles at position `drop`; tables may be scaled
 * @property {number[]} sin
 * @property {boolean} interleaved whether pairs are neighbours
 *
 * @typedef {object} LocalFacts
 * @property {number} kept rows that the next tokens read
 * @property {number} drop
 * @property {number} chunk tokens at most that are computed together
 * @property {Turn[]} turns
 *
 * @typedef {object} DecoderFacts of a decoder's graph (pyruntime/generate/facts.py)
 * @property {number | null} positions that it knows; null: nothing says it
 * @property {Record<string, number>} rows of caches that have a window's rows and no others: at least so many
 * @property {LocalFacts | null} local null: something looks further back
 */

export class LocalCaches {
  #turns;

  /** @param {LocalFacts} facts */
  constructor({ kept, drop, chunk, turns }) {
    this.kept = kept;
    this.drop = drop;
    this.chunk = chunk;
    this.#turns = new Map(turns.flatMap((turn) => turn.caches.map((name) => [name, turn])));
  }

  /** Return the number of rows to release before a run, out of `rows`. @param {number} rows */
  gone(rows) {
    return this.drop * Math.max(0, Math.floor((rows - this.kept) / this.drop));
  }

  /** Return the number of tokens that can be computed one at a time after `rows` rows before rows are released. @param {number} rows */
  capacity(rows) {
    return this.kept + this.drop - rows;
  }

  /**
   * Return the rotation of keys with `size` components by -`by` positions, R(-by), to multiply from the right; null for other caches.
   * @param {string} name name of the cache
   * @param {number} by a multiple of `drop`
   * @param {number} size
   * @returns {Float32Array | null} `[size, size]`
   */
  rotation(name, by, size) {
    const turn = this.#turns.get(name);
    if (!turn) return null;
    const { cos, sin, interleaved } = turn;
    const made = new Float32Array(size * size);
    for (let i = 0; i < size; i++) made[i * size + i] = 1;
    cos.forEach((c, i) => {
      const angle = (by / this.drop) * Math.atan2(sin[i], c);
      const [a, b] = interleaved ? [2 * i, 2 * i + 1] : [i, i + cos.length];
      made[a * size + a] = Math.cos(angle);
      made[b * size + b] = Math.cos(angle);
      made[b * size + a] = Math.sin(angle);
      made[a * size + b] = -Math.sin(angle);
    });
    return made;
  }
}
