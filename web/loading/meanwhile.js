// @ts-check
/** What Python does while it would wait for a model. */

/** @typedef {import('../runtime.js').Report} Report */

/**
 * Milliseconds that a download still takes, at least: with few processors `work` is in its way (two of them, PVT, 54 MB in 0.55 s: its
 * first pipeline was asked for at 1.16 s instead of 0.95). And how long its rate is watched before.
 */
const [LONG_MS, WATCHED_MS] = navigator.hardwareConcurrency > 4 ? [300, 30] : [1000, 100];

/**
 * A report that begins `work`, once, while a model takes long to come. One that comes fast is planned soon.
 * @param {Report} report
 * @param {(comes: () => boolean) => void} work is told what says whether it still comes
 * @returns {Report}
 */
export function meanwhile(report, work) {
  /** @type {{time: number, loaded: number} | null} */
  let first = null;
  let isOver = false;
  let comes = true;
  return (event) => {
    report(event);
    if (event.phase === 'model' && event.total) comes = event.loaded !== event.total;
    if (isOver || event.phase !== 'model' || !event.loaded || !event.total) return;
    const now = { time: performance.now(), loaded: event.loaded };
    first ??= now;
    const passed = now.time - first.time;
    if (passed < WATCHED_MS || passed * (event.total - now.loaded) < LONG_MS * (now.loaded - first.loaded)) return;
    isOver = true;
    work(() => comes);
  };
}
