// @ts-check
/** TextGenerator, whose modules are fetched on first use, since most pages generate no text. */

import { requireBrowser } from '../api/port.js';

/** @typedef {typeof import('./generator.js').TextGenerator} Loaded */

/** @type {Loaded | undefined} */
let loaded;

export class TextGenerator {
  /**
   * Same as `TextGenerator.create` of generator.js.
   * @param {Parameters<Loaded['create']>} given
   * @returns {Promise<import('./generator.js').TextGenerator>}
   */
  static async create(...given) {
    requireBrowser();
    loaded = (await import('./generator.js')).TextGenerator;
    return loaded.create(...given);
  }

  /** Makes `instanceof` accept generators of generator.js. @param {unknown} value */
  static [Symbol.hasInstance](value) {
    return loaded !== undefined && value instanceof loaded;
  }
}
