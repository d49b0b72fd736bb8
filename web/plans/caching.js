// @ts-check
/** Cache the plans that Python has made for a session: when the session is idle, and before its release. */

import { version } from '../api/env.js';
import { find, hashOf, put } from './plan_cache.js';

export { find, forget, isAnything, permission, placeOf } from './plan_cache.js';

/** Milliseconds without a run after which plans are cached. */
const REST_MS = 400;

export class Keeper {
  #owner;
  #handle;
  #place;
  /** Kinds of feeds that have been run. @type {Set<string>} */
  #seen = new Set();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {Promise<void>} */
  #work = Promise.resolve();
  #may;

  /**
   * @param {{call: (method: string, args: any) => Promise<any>}} owner
   * @param {number} handle
   * @param {string} place the cache key of the session's model
   * @param {() => boolean} may whether plans may still be cached
   */
  constructor(owner, handle, place, may) {
    this.#owner = owner;
    this.#handle = handle;
    this.#place = place;
    this.#may = may;
  }

  /** A run with new types or shapes of inputs has ended: cache plans once no run follows for REST_MS. @param {Record<string, any>} feeds */
  ran(feeds) {
    const kind = JSON.stringify(Object.entries(feeds).map(([name, value]) => [name, value?.type, value?.dims]));
    if (!this.#seen.has(kind)) {
      this.#seen.add(kind);
    } else if (this.#timer === undefined) {
      return;
    }
    this.ranUnrequested();
  }

  /** Note runs that did not come through the session's `run`. */
  ranUnrequested() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#begin(), REST_MS);
  }

  #begin() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#work = this.#work.then(() => this.#keep()).catch((error) => {
      console.info(`pyruntime: the plan is not cached: ${error.message}`);
    });
  }

  async #keep() {
    const before = [];
    for (const { version: by, adapter, read } of await find(this.#place)) {
      const plan = by === version ? await read() : null;
      if (plan) before.push({ adapter, plan });
    }
    /** @type {import('../api/protocol.js').CachedPlan | null} */
    const made = await this.#owner.call('cachePlan', { session: this.#handle, before });
    if (!made) return;
    await put(this.#place, { version, adapter: made.adapter, tags: made.tags }, made.plan, this.#may);
  }

  /** Cache what is not cached yet. */
  async finish() {
    if (this.#timer !== undefined) this.#begin();
    await this.#work;
  }
}

/** The adapter of files that are for any adapter. */
const NONE = { vendor: '', architecture: '', device: '', description: '' };

/**
 * A small model that Python writes, cached next to plans.
 * @param {string} name the model's cache key
 * @param {() => Promise<Uint8Array<ArrayBuffer> | null>} write
 * @returns {Promise<Uint8Array<ArrayBuffer> | null>}
 */
export async function cachedModel(name, write) {
  const place = await hashOf(`model ${name}`);
  const found = (await find(place).catch(() => [])).find(({ version: by }) => by === version);
  const bytes = await found?.read();
  if (bytes) return new Uint8Array(bytes);
  const made = await write();
  if (made) await put(place, { version, adapter: NONE }, made.slice().buffer);
  return made;
}
