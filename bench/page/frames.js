// @ts-check
/** Frames with one engine each. */

/** A frame in which the page of this address has loaded. @param {string} address */
export async function loadFrame(address) {
  const frame = document.createElement('iframe');
  frame.src = address;
  const loaded = new Promise((resolve) => { frame.addEventListener('load', resolve); });
  document.body.append(frame);
  await loaded;
  return frame;
}

/** @param {string} engine */
export async function openFrame(engine) {
  const frame = await loadFrame(`frame.html?engine=${engine}`);
  const { bench } = /** @type {any} */ (frame.contentWindow);
  if (!bench) throw new Error(`${engine}: frame.js did not load`);
  return { bench, close: () => frame.remove() };
}
