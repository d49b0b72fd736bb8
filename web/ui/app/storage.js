// @ts-check
/** The data cached on this computer: the runtime by the service worker, models by the page. The visitor can see and clear it. */

import { SITE } from '../../addresses.js';
import { started } from '../../api/client.js';
import { byId } from '../dom.js';
import * as plans from '../../plans/plan_cache.js';
import { formatBytes } from './format.js';
import * as models from './model/store.js';

const CACHE = 'pyruntime-site';
const WORKER = new URL('service-worker.js', SITE);

/** Milliseconds to wait for the service worker to confirm that its cache is cleared. */
const PATIENCE_MS = 2000;

export class Storage {
  /** Whether the visitor has cleared the cache: the site is then no longer cached in this visit, unless requested. */
  #isCleared = false;
  /** Number of requests for the state. */
  #shown = 0;
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve();

  constructor() {
    this.text = byId('storage-text');
    this.keep = /** @type {HTMLInputElement} */ (byId('storage-keep'));
    this.clearButton = /** @type {HTMLButtonElement} */ (byId('storage-clear'));
    this.keep.checked = models.isKeeping();
    this.keep.addEventListener('change', () => this.#switch());
    this.clearButton.addEventListener('click', () => this.#clear());
    plans.changes.addEventListener('change', () => this.show());
    navigator.serviceWorker?.addEventListener('message', ({ data }) => {
      if (data?.kept !== undefined) this.show();
    });
  }

  /** Return whether an earlier visit has cached Python. */
  async hasPython() {
    return (await siteUsage()).hasPython;
  }

  /** Cache the files that this page has fetched, and Python's if it has started. */
  async start() {
    if (models.isKeeping()) await this.#keepSite();
    await this.show();
  }

  /** Run `work` after the work in progress: reading a cache while it is deleted would create it again. @template T @param {() => Promise<T>} work */
  #next(work) {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => {});
    return done;
  }

  /** Show the current state; of several calls, the last one counts. */
  show() {
    this.#shown += 1;
    const turn = this.#shown;
    return this.#next(async () => {
      if (turn === this.#shown) await this.#look();
    });
  }

  async #look() {
    const [{ site, hasPython }, { disk, memory }, planned] = await Promise.all([siteUsage(), models.usage(), plans.usage()]);
    const parts = [
      site ? `the page${hasPython ? ' and Python' : ''}, ${formatBytes(site)}` : '',
      disk ? `models, ${formatBytes(disk)}` : '',
      planned.plans ? `${planned.plans} ${planned.plans === 1 ? 'plan' : 'plans'}, ${formatBytes(planned.bytes)}` : '',
    ].filter(Boolean);
    const held = memory ? ` There was no storage for ${formatBytes(memory)} of models: they stay until this tab is closed.` : '';
    this.text.textContent = `${parts.length ? `Kept: ${parts.join('; ')}.` : 'Nothing is kept.'}${held}`;
    this.clearButton.disabled = !site && !disk && !memory && !planned.plans;
  }

  async #switch() {
    models.setKeeping(this.keep.checked);
    this.#isCleared = !this.keep.checked;
    if (this.keep.checked) await this.#keepSite();
    else await this.#clear();
    await this.show();
  }

  /** Let the service worker cache the files that this page and its worker have loaded. */
  async #keepSite() {
    try {
      if (!navigator.serviceWorker || this.#isCleared) return;
      const registration = await navigator.serviceWorker.register(WORKER);
      await navigator.serviceWorker.ready;
      const own = performance.getEntriesByType('resource').map(({ name }) => name);
      const urls = [document.baseURI, ...own, ...await started()?.call('resources', {}) ?? []];
      if (this.#isCleared) await this.#next(forgetSite);
      else registration.active?.postMessage({ keep: [...new Set(urls)] });
    } catch (error) {
      console.info(`pyruntime: nothing is kept for the next visit: ${/** @type {Error} */ (error).message}`);
    }
  }

  async #clear() {
    this.clearButton.disabled = true;
    this.#isCleared = true;
    await this.#next(() => Promise.all([forgetSite(), models.clear(), plans.clear()]));
    await this.show();
  }
}

/** Unregister the service worker and delete its cache. */
async function forgetSite() {
  for (const registration of await navigator.serviceWorker?.getRegistrations() ?? []) {
    const worker = registration.active ?? registration.waiting ?? registration.installing;
    if (worker?.scriptURL !== WORKER.href) continue;
    await new Promise((resolve) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = resolve;
      setTimeout(resolve, PATIENCE_MS); // a worker that has ended does not respond
      worker.postMessage({ cleared: true }, [port2]);
    });
    await registration.unregister();
  }
  if ('caches' in globalThis) await caches.delete(CACHE);
}

/** Return the bytes of the site's cached files, and whether Python is among them. */
async function siteUsage() {
  const usage = { site: 0, hasPython: false };
  if (!('caches' in globalThis) || !await caches.has(CACHE)) return usage;
  const cache = await caches.open(CACHE);
  for (const request of await cache.keys()) {
    usage.site += Number((await cache.match(request))?.headers.get('Content-Length') ?? 0);
    usage.hasPython ||= request.url.includes('/pyodide/');
  }
  return usage;
}
