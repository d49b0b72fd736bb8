// @ts-check
/**
 * Trim the caches of models with local attention: rows that no later token attends to are released.
 *
 * pyruntime/generate/trimming.py explains for which models, and why results equal those with all rows. Rows are released in multiples of
 * `drop`, as soon as there are `kept` + `drop`; the remaining keys are rotated back by as many positions.
 */

/**
 * @typedef {object} Turn the rotary tables of an attention
 * @property {string[]} caches names of key caches
 * @property {number[]} cos cosines of the pairs' angles at position `drop`; tables may be scaled
 * @property {number[]} sin
 * @property {boolean} interleaved whether pairs are interleaved
 *
 * @typedef {object} LocalFacts
 * @property {number} kept rows that later tokens attend to
 * @property {number} drop
 * @property {number} chunk maximum number of tokens computed together
 * @property {Turn[]} turns
 *
 * @typedef {object} DecoderFacts facts about a decoder's graph (pyruntime/generate/facts.py)
 * @property {number | null} positions number of positions that it supports; null: unknown
 * @property {Record<string, number>} rows minimum number of rows of caches that only hold a window
 * @property {LocalFacts | null} local null: some attention is not local
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
