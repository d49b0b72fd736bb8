// @ts-check
/** Has what Python has planned for a session kept for the next visit: when the session rests, and before it is released. */

import { version } from '../api/env.js';
import { find, hashOf, isAnything, put } from './plan_cache.js';

export { find, forget, permission, placeOf } from './plan_cache.js';

/** Milliseconds without a run, after which what has been planned is kept. */
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
   * @param {string} place where plans of the session's model are kept
   * @param {() => boolean} may whether they may be kept, still
   */
  constructor(owner, handle, place, may) {
    this.#owner = owner;
    this.#handle = handle;
    this.#place = place;
    this.#may = may;
  }

  /** A run is over. @param {Record<string, any>} feeds */
  ran(feeds) {
    const kind = JSON.stringify(Object.entries(feeds).map(([name, value]) => [name, value?.type, value?.dims]));
    if (!this.#seen.has(kind)) {
      this.#seen.add(kind);
    } else if (this.#timer === undefined) {
      return;
    }
    this.ranBeside();
  }

  /** There have been runs that the session was not asked for. */
  ranBeside() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#begin(), REST_MS);
  }

  #begin() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#work = this.#work.then(() => this.#keep()).catch((error) => {
      console.info(`pyruntime: the plan is not kept: ${error.message}`);
    });
  }

  async #keep() {
    const before = [];
    for (const { version: by, adapter, read } of await find(this.#place)) {
      const plan = by === version ? await read() : null;
      if (plan) before.push({ adapter, plan });
    }
    /** @type {import('../api/protocol.js').KeptPlan | null} */
    const made = await this.#owner.call('keepPlan', { session: this.#handle, before });
    if (!made) return;
    await put(this.#place, { version, adapter: made.adapter, tags: made.tags }, made.plan, this.#may);
    await Promise.all([import('./bound_caches.js'), import('./decoding.js'), import('../gpu/fallback.js')]); // what runs it is there offline, too
  }

  /** Keep what is not yet, and be done. */
  async finish() {
    if (this.#timer !== undefined) this.#begin();
    await this.#work;
  }
}

/** What is kept of no adapter. */
const NONE = { vendor: '', architecture: '', device: '', description: '' };

/** Whether plans are kept, of whatever model. */
export function isAnythingKept() {
  return isAnything();
}

/**
 * A small model that Python writes, kept beside plans.
 * @param {string} name of what it is
 * @param {() => Promise<Uint8Array<ArrayBuffer> | null>} write
 * @returns {Promise<Uint8Array<ArrayBuffer> | null>}
 */
export async function keptModel(name, write) {
  const place = await hashOf(`model ${name}`);
  const found = (await find(place).catch(() => [])).find(({ version: by }) => by === version);
  const bytes = await found?.read();
  if (bytes) return new Uint8Array(bytes);
  const made = await write();
  if (made) await put(place, { version, adapter: NONE }, made.slice().buffer);
  return made;
}
