// @ts-check
/** Frames with one engine each. */

/** @param {string} engine */
export async function openFrame(engine) {
  const frame = document.createElement('iframe');
  frame.src = `frame.html?engine=${engine}`;
  const loaded = new Promise((resolve) => { frame.addEventListener('load', resolve); });
  document.body.append(frame);
  await loaded;
  const { bench } = /** @type {any} */ (frame.contentWindow);
  if (!bench) throw new Error(`${engine}: frame.js did not load`);
  return { bench, close: () => frame.remove() };
}
